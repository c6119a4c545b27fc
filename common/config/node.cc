#include "common/config/node.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace manta::config {

std::string Mark::ToString() const {
  if (file == nullptr) return "default";
  if (line <= 0) return *file;
  return absl::StrCat(*file, ":", line);
}

Node Node::Scalar(std::string text, Mark mark, bool quoted) {
  Node node;
  node.kind = Kind::kScalar;
  node.scalar = std::move(text);
  node.quoted = quoted;
  node.mark = std::move(mark);
  return node;
}

Node Node::Map(Mark mark) {
  Node node;
  node.kind = Kind::kMap;
  node.mark = std::move(mark);
  return node;
}

const Node* Node::Find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

Node* Node::Find(std::string_view key) { return const_cast<Node*>(static_cast<const Node*>(this)->Find(key)); }

Node& Node::Set(std::string_view key, Node value) {
  if (Node* there = Find(key)) {
    *there = std::move(value);
    return *there;
  }
  keys.emplace_back(key);
  items.push_back(std::move(value));
  return items.back();
}

bool Node::Erase(std::string_view key) {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != key) continue;
    keys.erase(keys.begin() + static_cast<ptrdiff_t>(i));
    items.erase(items.begin() + static_cast<ptrdiff_t>(i));
    return true;
  }
  return false;
}

std::optional<bool> Node::AsBool() const {
  if (!is_scalar() || quoted) return std::nullopt;
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (scalar == yes) return true;
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (scalar == no) return false;
  }
  return std::nullopt;
}

std::optional<int64_t> Node::AsInt() const {
  if (!is_scalar() || quoted || scalar.empty()) return std::nullopt;
  std::string digits;  // 1_000_000 is an integer in YAML 1.1
  for (char c : scalar) {
    if (c != '_') digits.push_back(c);
  }
  if (digits.find_first_not_of("+-0123456789") != std::string::npos) return std::nullopt;
  int64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value)) return std::nullopt;
  return value;
}

std::optional<double> Node::AsDouble() const {
  if (auto integer = AsInt()) return static_cast<double>(*integer);
  if (!is_scalar() || quoted || scalar.empty()) return std::nullopt;
  if (scalar == ".inf" || scalar == "+.inf") return HUGE_VAL;
  if (scalar == "-.inf") return -HUGE_VAL;
  if (scalar == ".nan") return NAN;
  if (scalar.find_first_not_of("+-.0123456789eE") != std::string::npos) return std::nullopt;
  if (scalar.find_first_of("0123456789") == std::string::npos) return std::nullopt;
  double value = 0;
  if (!absl::SimpleAtod(scalar, &value)) return std::nullopt;
  return value;
}

const char* Node::KindName() const {
  switch (kind) {
    case Kind::kNull: return "null";
    case Kind::kSequence: return "a list";
    case Kind::kMap: return "a map";
    case Kind::kScalar: break;
  }
  if (AsBool()) return "true or false";
  return AsDouble() ? "a number" : "text";
}

std::vector<std::string> SplitPath(std::string_view dotted) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t dot = dotted.find('.', begin);
    parts.emplace_back(dotted.substr(begin, dot == std::string_view::npos ? dot : dot - begin));
    if (dot == std::string_view::npos) return parts;
    begin = dot + 1;
  }
}

const Node* FindPath(const Node& root, std::string_view dotted) {
  const Node* node = &root;
  if (dotted.empty()) return node;
  for (const std::string& part : SplitPath(dotted)) {
    if (node->is_sequence()) {
      uint32_t index = 0;
      if (!absl::SimpleAtoi(part, &index) || index >= node->items.size()) return nullptr;
      node = &node->items[index];
      continue;
    }
    if (!node->is_map()) return nullptr;
    node = node->Find(part);
    if (node == nullptr) return nullptr;
  }
  return node;
}

void MergeInto(Node& base, const Node& over) {
  if (!base.is_map() || !over.is_map()) {
    base = over;
    return;
  }
  base.mark = over.mark;
  for (size_t i = 0; i < over.keys.size(); ++i) {
    if (Node* there = base.Find(over.keys[i])) {
      MergeInto(*there, over.items[i]);
    } else {
      base.Set(over.keys[i], over.items[i]);
    }
  }
}

bool SameValue(const Node& a, const Node& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNull: return true;
    case Kind::kScalar: {
      if (auto x = a.AsBool(), y = b.AsBool(); x || y) return x == y;
      if (auto x = a.AsDouble(), y = b.AsDouble(); x && y) return *x == *y;
      return a.scalar == b.scalar;
    }
    case Kind::kSequence:
      if (a.items.size() != b.items.size()) return false;
      for (size_t i = 0; i < a.items.size(); ++i) {
        if (!SameValue(a.items[i], b.items[i])) return false;
      }
      return true;
    case Kind::kMap:
      if (a.items.size() != b.items.size()) return false;
      for (size_t i = 0; i < a.items.size(); ++i) {
        const Node* other = b.Find(a.keys[i]);
        if (other == nullptr || !SameValue(a.items[i], *other)) return false;
      }
      return true;
  }
  return false;
}

}  // namespace manta::config

// Node as YAML and as JSON.
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/node.h"
#include "nlohmann/json.hpp"

namespace manta::config {
namespace {

// Double-quoted YAML (and JSON, but for \x, which is not used).
std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      case '\r': out += "\\r"; break;
      default:
        if (c < 0x20 || c == 0x7f) {
          absl::StrAppendFormat(&out, "\\x%02x", c);
        } else {
          out.push_back(static_cast<char>(c));
        }
    }
  }
  return out + "\"";
}

bool LooksNull(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

// Whether plain `text` reads back as that same text, whatever surrounds it.
bool PlainIsSafe(std::string_view text) {
  if (LooksNull(text)) return false;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`<=").find(text[0]) != std::string_view::npos) {
    const bool minus =
        text.size() > 1 && text[0] == '-' && (std::isdigit(static_cast<unsigned char>(text[1])) || text[1] == '.');
    if (!minus) return false;
  }
  for (unsigned char c : text) {
    if (c < 0x20 || c >= 0x7f || std::string_view("[]{},#\"\\").find(static_cast<char>(c)) != std::string_view::npos) {
      return false;
    }
  }
  return text.find(": ") == std::string_view::npos && text != "---" && text != "...";
}

std::string ScalarYaml(const Node& node) {
  bool special = node.AsBool().has_value() || node.AsDouble().has_value();
  if (!node.quoted) return PlainIsSafe(node.scalar) || special ? node.scalar : Quote(node.scalar);
  Node plain = Node::Scalar(node.scalar, node.mark);
  bool changes_meaning = plain.AsBool() || plain.AsDouble() || !PlainIsSafe(node.scalar);
  return changes_meaning ? Quote(node.scalar) : node.scalar;
}

bool IsFlat(const Node& node) {
  for (const Node& item : node.items) {
    if (item.is_map() || item.is_sequence()) return false;
  }
  return true;
}

// Appends `node` after "key:" or "-" at `indent`, with the line's end.
void Append(const Node& node, int indent, bool after_dash, std::string& out) {
  std::string pad(static_cast<size_t>(indent), ' ');
  switch (node.kind) {
    case Kind::kNull: out += " null\n"; return;
    case Kind::kScalar: absl::StrAppend(&out, " ", ScalarYaml(node), "\n"); return;
    case Kind::kSequence:
      if (IsFlat(node)) {
        out += " [";
        for (size_t i = 0; i < node.items.size(); ++i) {
          const Node& item = node.items[i];
          absl::StrAppend(&out, i > 0 ? ", " : "", item.is_null() ? "null" : ScalarYaml(item));
        }
        out += "]\n";
        return;
      }
      out += "\n";
      for (const Node& item : node.items) {
        absl::StrAppend(&out, pad, "-");
        Append(item, indent + 2, true, out);
      }
      return;
    case Kind::kMap:
      if (node.items.empty()) {
        out += " {}\n";
        return;
      }
      if (!after_dash) out += "\n";
      for (size_t i = 0; i < node.items.size(); ++i) {
        Node key = Node::Scalar(node.keys[i], node.mark, true);
        absl::StrAppend(&out, i == 0 && after_dash ? " " : pad, ScalarYaml(key), ":");
        Append(node.items[i], indent + 2, false, out);
      }
      return;
  }
}

nlohmann::ordered_json Json(const Node& node) {
  switch (node.kind) {
    case Kind::kNull: return nullptr;
    case Kind::kScalar:
      if (auto value = node.AsBool()) return *value;
      if (auto value = node.AsInt()) return *value;
      if (auto value = node.AsDouble()) return *value;
      return node.scalar;
    case Kind::kSequence: {
      auto list = nlohmann::ordered_json::array();
      for (const Node& item : node.items) list.push_back(Json(item));
      return list;
    }
    case Kind::kMap: {
      auto map = nlohmann::ordered_json::object();
      for (size_t i = 0; i < node.items.size(); ++i) map[node.keys[i]] = Json(node.items[i]);
      return map;
    }
  }
  return nullptr;
}

}  // namespace

std::string ToYaml(const Node& node) {
  std::string out;
  if (node.is_map() && !node.items.empty()) {
    for (size_t i = 0; i < node.items.size(); ++i) {
      Node key = Node::Scalar(node.keys[i], node.mark, true);
      absl::StrAppend(&out, ScalarYaml(key), ":");
      Append(node.items[i], 2, false, out);
    }
    return out;
  }
  Append(node, 0, false, out);
  return out.substr(out.find_first_not_of(" \n"));
}

std::string ToJson(const Node& node) {
  // Text that is not UTF-8 is written with U+FFFD: the only way for dump to throw is gone.
  return Json(node).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace manta::config

#include "common/config/override.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/config/yaml.h"

namespace manta::config {
namespace {

void MarkAll(Node& node, const Mark& mark) {
  node.mark = mark;
  for (Node& item : node.items) MarkAll(item, mark);
}

Node* Child(Node& parent, const std::string& part) {
  if (parent.is_map()) return parent.Find(part);
  uint32_t index = 0;
  if (!parent.is_sequence() || !absl::SimpleAtoi(part, &index) || index >= parent.items.size()) return nullptr;
  return &parent.items[index];
}

}  // namespace

absl::Status ApplyOverride(std::string_view text_view, Node& root) {
  const std::string text(text_view);
  const Mark mark{std::make_shared<const std::string>(absl::StrCat("override ", text)), 0};
  const bool deletes = !text.empty() && text[0] == '~';
  const size_t begin = !text.empty() && (text[0] == '~' || text[0] == '+') ? (text.compare(0, 2, "++") == 0 ? 2 : 1) : 0;
  const size_t equals = text.find('=');
  const size_t end = deletes ? text.size() : equals;
  if (end == std::string::npos || end <= begin) {
    return UserError(absl::StrCat("'", text, "' is not an override: expected key=value, +key=value or ~key"));
  }
  const std::vector<std::string> parts = SplitPath(std::string_view(text).substr(begin, end - begin));
  for (const std::string& part : parts) {
    if (part.empty() || part.find_first_of(" \t\n") != std::string::npos) {
      return UserError(absl::StrCat("'", text, "' is not an override: the key has an empty part or a blank"));
    }
  }
  if (parts.size() > 50) return UserError("an override's key has more than 50 parts");

  Node* parent = &root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    Node* next = Child(*parent, parts[i]);
    if (next == nullptr || (!next->is_map() && !next->is_sequence())) {
      if (deletes) return UserError(absl::StrCat("override ", text, ": there is no such key"));
      if (parent->is_sequence()) {
        return UserError(absl::StrCat("override ", text, ": the list has no element ", parts[i]));
      }
      if (next != nullptr && next->is_scalar()) {
        return UserError(absl::StrCat("override ", text, ": ", parts[i], " is ", next->KindName(), ", not a map (",
                                      next->mark.ToString(), ")"));
      }
      next = &parent->Set(parts[i], Node::Map(mark));
    }
    parent = next;
  }
  if (deletes) {
    if (!parent->is_map() || !parent->Erase(parts.back())) {
      return UserError(absl::StrCat("override ", text, ": there is no such key"));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Node> value = ParseYaml(std::string_view(text).substr(equals + 1), "value");
  if (!value.ok()) {
    const std::string message(value.status().message());  // without its "value:LINE: "
    return UserError(absl::StrCat("override ", text, ": ", message.substr(message.find(": ") + 2)));
  }
  MarkAll(*value, mark);
  if (Node* there = Child(*parent, parts.back())) {
    MergeInto(*there, *value);
  } else if (parent->is_map()) {
    parent->Set(parts.back(), *std::move(value));
  } else {
    return UserError(absl::StrCat("override ", text, ": the list has no element ", parts.back()));
  }
  return absl::OkStatus();
}

}  // namespace manta::config

#include "common/tokenizer/json_node.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/base/strings.h"

namespace manta::tokenizer {
namespace {

std::string_view KindName(simdjson::dom::element_type type) {
  switch (type) {
    case simdjson::dom::element_type::ARRAY:
      return "a list";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "true or false";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

// simdjson does not say where an error lies; nlohmann's slower parser does.
std::string Position(std::string_view json, simdjson::error_code error) {
  try {
    const nlohmann::json parsed = nlohmann::json::parse(json);
  } catch (const nlohmann::json::exception& e) {
    std::string_view what = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const size_t end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    return std::string(what);
  } catch (const std::exception& e) {
    return e.what();
  }
  return simdjson::error_message(error);
}

}  // namespace

absl::Status JsonNode::Error(std::string_view message) const {
  return UserError(StrCat(where_, ": ", message));
}

absl::Status JsonNode::Unexpected(std::string_view expected) const {
  return Error(StrCat("expected ", expected, ", found ", KindName(value_.type())));
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  simdjson::dom::element found;
  if (value_.at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
  // A dot between fields, a space after the file's name.
  return JsonNode(found, StrCat(where_, where_.find(": ") == where_.npos ? ": " : ".", key));
}

absl::StatusOr<JsonNode> JsonNode::Need(std::string_view key) const {
  MANTA_RETURN_IF_ERROR(CheckObject());
  std::optional<JsonNode> found = Find(key);
  if (!found.has_value()) return Error(StrCat("\"", key, "\" is missing"));
  return *std::move(found);
}

absl::StatusOr<std::string> JsonNode::AsString() const {
  std::string_view text;
  if (value_.get(text) != simdjson::SUCCESS) return Unexpected("a string");
  return std::string(text);
}

absl::StatusOr<bool> JsonNode::AsBool() const {
  bool value;
  if (value_.get(value) != simdjson::SUCCESS) return Unexpected("true or false");
  return value;
}

absl::StatusOr<int64_t> JsonNode::AsInt(int64_t least, int64_t greatest) const {
  int64_t value;
  if (!value_.is_number()) return Unexpected("a whole number");
  if (value_.get(value) != simdjson::SUCCESS || value < least || value > greatest) {
    return Error(StrCat("expected a whole number from ", least, " to ", greatest));
  }
  return value;
}

absl::StatusOr<std::vector<JsonNode>> JsonNode::AsList() const {
  simdjson::dom::array array;
  if (value_.get(array) != simdjson::SUCCESS) return Unexpected("a list");
  std::vector<JsonNode> list;
  for (simdjson::dom::element element : array) {
    list.emplace_back(element, StrCat(where_, "[", list.size(), "]"));
  }
  return list;
}

absl::Status JsonNode::CheckObject() const {
  return value_.is_object() ? absl::OkStatus() : Unexpected("an object");
}

absl::StatusOr<std::string> JsonNode::StringOr(std::string_view key, std::string_view otherwise) const {
  const std::optional<JsonNode> found = Find(key);
  return found.has_value() ? found->AsString() : std::string(otherwise);
}

absl::StatusOr<bool> JsonNode::BoolOr(std::string_view key, bool otherwise) const {
  const std::optional<JsonNode> found = Find(key);
  return found.has_value() ? found->AsBool() : otherwise;
}

absl::StatusOr<std::string> JsonNode::Type() const {
  MANTA_ASSIGN_OR_RETURN(const JsonNode type, Need("type"));
  return type.AsString();
}

absl::StatusOr<JsonNode> ParseJson(std::string_view json, std::string_view file, simdjson::dom::parser* parser) {
  simdjson::dom::element root;
  if (const auto error = parser->parse(json.data(), json.size()).get(root); error != simdjson::SUCCESS) {
    return UserError(StrCat(file, ": not JSON: ", Position(json, error)));
  }
  return JsonNode(root, std::string(file));
}

}  // namespace manta::tokenizer

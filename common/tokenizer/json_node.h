// JsonNode: a value of a parsed JSON file that knows where it stands, so that every error can name file and field
// ("tokenizer.json: model.merges: expected a list, found a number"). A view into a simdjson document, which must
// outlive it. Cheap enough for settings, not for the entries of a vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "simdjson.h"

namespace manta::tokenizer {

class JsonNode {
 public:
  JsonNode(simdjson::dom::element value, std::string where) : value_(value), where_(std::move(where)) {}

  const simdjson::dom::element& value() const { return value_; }
  // "tokenizer.json: model.merges"
  const std::string& where() const { return where_; }
  absl::Status Error(std::string_view message) const;

  // A field that is there and not null. The node must be an object.
  std::optional<JsonNode> Find(std::string_view key) const;
  absl::StatusOr<JsonNode> Need(std::string_view key) const;

  absl::StatusOr<std::string> AsString() const;
  absl::StatusOr<bool> AsBool() const;
  absl::StatusOr<int64_t> AsInt(int64_t least, int64_t greatest) const;
  absl::StatusOr<std::vector<JsonNode>> AsList() const;
  absl::Status CheckObject() const;

  // Fields that may be absent or null.
  absl::StatusOr<std::string> StringOr(std::string_view key, std::string_view otherwise) const;
  absl::StatusOr<bool> BoolOr(std::string_view key, bool otherwise) const;

  // The field "type" of an object.
  absl::StatusOr<std::string> Type() const;

 private:
  absl::Status Unexpected(std::string_view expected) const;

  simdjson::dom::element value_;
  std::string where_;
};

// Parses `json` with `parser`, which owns the result. Errors name `file`, line and column.
absl::StatusOr<JsonNode> ParseJson(std::string_view json, std::string_view file, simdjson::dom::parser* parser);

}  // namespace manta::tokenizer

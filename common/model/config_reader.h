// Typed reads out of one JSON object that remember the first error: "FILE: FIELD: expected ..., got ...".
//
// After an error every read still answers (with its default), so that a parser reads top to bottom and looks at
// status() once. Not thread-safe; the JSON must outlive the reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace manta::model {

// A value's text for an error message, at most 60 characters.
std::string Shorten(const nlohmann::ordered_json& value);

class ConfigReader {
 public:
  enum Sign { kPositive, kNotNegative };

  // `prefix` goes before field names: "rope_scaling.".
  ConfigReader(const nlohmann::ordered_json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  bool Has(const char* key) const;     // there and not null
  bool IsNull(const char* key) const;  // there and null
  bool HasObject(const char* key) const { return Has(key); }

  int64_t RequiredInteger(const char* key, int64_t min);
  int64_t Integer(const char* key, int64_t absent, int64_t min);
  double RequiredNumber(const char* key, Sign sign);
  double Number(const char* key, double absent, Sign sign);
  bool Bool(const char* key, bool absent);
  std::string Text(const char* key, const std::string& absent);
  std::vector<std::string> TextList(const char* key);   // empty where absent
  std::vector<int64_t> IntegerOrList(const char* key);  // empty where absent
  ConfigReader Object(const char* key);                 // a reader of the object under `key`
  void AtMost(const char* key, int64_t value, int64_t max);

  void Fail(const char* key, std::string_view expected, std::string_view got);
  void Adopt(const ConfigReader& inner);  // takes over its error, if any

 private:
  const nlohmann::ordered_json* Find(const char* key) const;

  const nlohmann::ordered_json& object_;
  std::string file_, prefix_;
  absl::Status status_;
};

}  // namespace manta::model

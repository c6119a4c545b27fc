// The JSON of a safetensors header, read as a stream of events: only such a reader sees duplicate keys, and it never
// builds a tree out of a hostile 100 MB header. Internal to safetensors.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/base/strings.h"
#include "common/checkpoint/safetensors.h"
#include "nlohmann/json.hpp"

namespace manta::checkpoint::internal {

class HeaderSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorInfo> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string error;

  bool null() override { return Value("null"); }
  bool boolean(bool) override { return Value("a boolean"); }
  bool number_integer(number_integer_t) override { return Value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Value("a number with a fraction"); }
  bool binary(binary_t&) override { return Value("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list_) return Value("a number");
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      metadata.emplace_back(field_, value);
      return true;
    }
    if (depth_ == 2 && !in_list_ && field_ == "dtype") {
      const std::optional<DType> dtype = ParseDType(value);
      if (!dtype) return Fail("dtype", StrCat("\"", value, "\" is no type of the format"));
      tensor_.dtype = *dtype;
      return true;
    }
    return Value("a string");
  }

  bool start_object(std::size_t) override {
    if (depth_ == 0) return ++depth_, true;
    if (depth_ != 1) return Value("an object");
    in_metadata_ = name_ == "__metadata__";
    tensor_ = TensorInfo();
    tensor_.name = name_;
    fields_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return ++depth_, true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      name_ = key;
      field_.clear();
      if (!names_.insert(key).second) return error = StrCat("duplicate key \"", key, "\""), false;
      return true;
    }
    field_ = key;
    if (!fields_.insert(key).second) return Fail(key, "duplicate key");
    if (in_metadata_) return true;
    if (key == "dtype") return has_dtype_ = true;
    if (key == "shape") return has_shape_ = true;
    if (key == "data_offsets") return has_offsets_ = true;
    return Fail(key, "expected dtype, shape or data_offsets");
  }

  bool end_object() override {
    if (--depth_ != 1) return true;
    if (in_metadata_) return true;
    if (!has_dtype_) return Fail("dtype", "absent");
    if (!has_shape_) return Fail("shape", "absent");
    if (!has_offsets_) return Fail("data_offsets", "absent");
    tensors.push_back(std::move(tensor_));
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_list_ || field_ == "dtype") return Value("a list");
    in_list_ = true;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    in_list_ = false;
    if (field_ == "shape") {
      for (uint64_t d : numbers_) {
        if (d > uint64_t{INT64_MAX}) return Fail("shape", "a dimension does not fit 63 bits");
        tensor_.shape.push_back(static_cast<int64_t>(d));
      }
      return true;
    }
    if (numbers_.size() != 2) return Fail("data_offsets", StrCat("expected 2 numbers, got ", numbers_.size()));
    tensor_.begin = numbers_[0];
    tensor_.end = numbers_[1];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    error = StrCat("bad JSON in the header at byte ", position);
    return false;
  }

 private:
  bool Fail(std::string_view field, std::string_view what) {
    error = StrCat("tensor \"", name_, "\": ", field, ": ", what);
    return false;
  }
  // A value where the format has another kind of one.
  bool Value(std::string_view got) {
    if (depth_ == 0) return error = StrCat("the header is ", got, ", expected an object"), false;
    if (depth_ == 1) return error = StrCat("tensor \"", name_, "\": expected an object, got ", got), false;
    if (in_metadata_) return error = StrCat("__metadata__: \"", field_, "\": expected a string, got ", got), false;
    const char* expected = field_ == "dtype" ? "a string" : "a list of numbers of at least 0";
    return Fail(field_, StrCat("expected ", expected, ", got ", got));
  }

  int depth_ = 0;
  bool in_metadata_ = false, in_list_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::string name_, field_;
  TensorInfo tensor_;
  std::vector<uint64_t> numbers_;
  absl::flat_hash_set<std::string> names_, fields_;
};

}  // namespace manta::checkpoint::internal

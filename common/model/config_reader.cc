#include "common/model/config_reader.h"

#include <cmath>

#include "common/base/status.h"
#include "common/base/strings.h"

namespace manta::model {
namespace {
using Json = nlohmann::ordered_json;
const Json& EmptyObject() {
  static const Json* empty = new Json(Json::object());
  return *empty;
}
}  // namespace

std::string Shorten(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

const Json* ConfigReader::Find(const char* key) const {
  auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::Has(const char* key) const {
  return Find(key) != nullptr;
}

bool ConfigReader::IsNull(const char* key) const {
  auto it = object_.find(key);
  return it != object_.end() && it->is_null();
}

void ConfigReader::Fail(const char* key, std::string_view expected, std::string_view got) {
  if (!status_.ok()) return;
  status_ = UserError(StrCat(file_, ": ", prefix_, key, ": ", expected, got.empty() ? "" : ", got ", got));
}

void ConfigReader::Adopt(const ConfigReader& inner) {
  if (status_.ok()) status_ = inner.status_;
}

int64_t ConfigReader::RequiredInteger(const char* key, int64_t min) {
  if (!Has(key)) {
    Fail(key, StrCat("expected an integer of at least ", min, ", it is absent"), "");
    return min;
  }
  return Integer(key, min, min);
}

int64_t ConfigReader::Integer(const char* key, int64_t absent, int64_t min) {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t{INT64_MAX}) &&
                    value->get<int64_t>() >= min;
  if (!fits) {
    Fail(key, StrCat("expected an integer of at least ", min), Shorten(*value));
    return absent;
  }
  return value->get<int64_t>();
}

double ConfigReader::RequiredNumber(const char* key, Sign sign) {
  if (!Has(key)) {
    Fail(key, "expected a number, it is absent", "");
    return 1;
  }
  return Number(key, 1, sign);
}

double ConfigReader::Number(const char* key, double absent, Sign sign) {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!std::isfinite(number) || number < 0 || (sign == kPositive && number == 0)) {
    Fail(key, sign == kPositive ? "expected a number above 0" : "expected a number of at least 0", Shorten(*value));
    return absent;
  }
  return number;
}

bool ConfigReader::Bool(const char* key, bool absent) {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) {
    Fail(key, "expected true or false", Shorten(*value));
    return absent;
  }
  return value->get<bool>();
}

std::string ConfigReader::Text(const char* key, const std::string& absent) {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) {
    Fail(key, "expected a string", Shorten(*value));
    return absent;
  }
  return value->get<std::string>();
}

std::vector<std::string> ConfigReader::TextList(const char* key) {
  std::vector<std::string> list;
  const Json* value = Find(key);
  if (value == nullptr) return list;
  bool good = value->is_array();
  for (const Json& item : good ? *value : EmptyObject()) {
    if (!item.is_string()) {
      good = false;
      break;
    }
    list.push_back(item.get<std::string>());
  }
  if (!good) Fail(key, "expected a list of strings", Shorten(*value));
  return list;
}

std::vector<int64_t> ConfigReader::IntegerOrList(const char* key) {
  std::vector<int64_t> list;
  const Json* value = Find(key);
  if (value == nullptr) return list;
  if (value->is_number_integer()) return {value->get<int64_t>()};
  bool good = value->is_array();
  for (const Json& item : good ? *value : EmptyObject()) {
    if (!item.is_number_integer()) {
      good = false;
      break;
    }
    list.push_back(item.get<int64_t>());
  }
  if (!good) Fail(key, "expected an integer or a list of integers", Shorten(*value));
  return list;
}

ConfigReader ConfigReader::Object(const char* key) {
  const Json* value = Find(key);
  const bool good = value != nullptr && value->is_object();
  ConfigReader inner(good ? *value : EmptyObject(), file_, StrCat(prefix_, key, "."));
  if (value != nullptr && !good) {
    Fail(key, "expected an object", Shorten(*value));
    inner.status_ = status_;
  }
  return inner;
}

void ConfigReader::AtMost(const char* key, int64_t value, int64_t max) {
  if (value > max) Fail(key, StrCat("expected at most ", max), StrCat(value));
}

}  // namespace manta::model

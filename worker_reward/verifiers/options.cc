#include "worker_reward/verifiers/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace manta::reward {

OptionReader::OptionReader(std::string verifier, const nlohmann::json& options)
    : verifier_(std::move(verifier)), options_(options) {
  if (!options.is_object() && !options.is_null()) Expect("options", "a map", options);
}

const nlohmann::json* OptionReader::Find(const std::string& name) {
  known_.insert(name);
  if (!options_.is_object()) return nullptr;
  const auto it = options_.find(name);
  return it == options_.end() || it->is_null() ? nullptr : &*it;
}

void OptionReader::Expect(const std::string& name, const std::string& what, const nlohmann::json& found) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("verifier ", verifier_, ": ", name, " must be ", what, ", found ",
                   found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 60)));
}

void OptionReader::Number(const std::string& name, double* value) {
  if (const nlohmann::json* found = Find(name)) {
    if (!found->is_number()) return Expect(name, "a number", *found);
    *value = found->get<double>();
  }
}

void OptionReader::Text(const std::string& name, std::string* value) {
  if (const nlohmann::json* found = Find(name)) {
    if (!found->is_string()) return Expect(name, "text", *found);
    *value = found->get<std::string>();
  }
}

void OptionReader::Choice(const std::string& name, const std::vector<std::string>& allowed, std::string* value) {
  if (const nlohmann::json* found = Find(name)) {
    if (!found->is_string() || std::find(allowed.begin(), allowed.end(), found->get<std::string>()) == allowed.end()) {
      return Expect(name, absl::StrCat("one of ", absl::StrJoin(allowed, ", ")), *found);
    }
    *value = found->get<std::string>();
  }
}

void OptionReader::Texts(const std::string& name, std::vector<std::string>* values) {
  if (const nlohmann::json* found = Find(name)) {
    if (!found->is_array()) return Expect(name, "a list of texts", *found);
    values->clear();
    for (const nlohmann::json& item : *found) {
      if (!item.is_string()) return Expect(name, "a list of texts", *found);
      values->push_back(item.get<std::string>());
    }
  }
}

absl::Status OptionReader::Finish() const {
  if (!status_.ok()) return status_;
  if (!options_.is_object()) return absl::OkStatus();
  for (const auto& [name, value] : options_.items()) {
    if (known_.contains(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("verifier ", verifier_, " has no option '", name, "'; it has ", absl::StrJoin(known_, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace manta::reward

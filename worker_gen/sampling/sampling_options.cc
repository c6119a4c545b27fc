#include "worker_gen/sampling/sampling_options.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace manta::gen {
namespace {

constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopStringBytes = 1024;

absl::Status OutOfRange(absl::string_view field, double value, absl::string_view range) {
  return absl::InvalidArgumentError(absl::StrCat("sampling.", field, " is ", value, "; it must be ", range));
}

}  // namespace

absl::StatusOr<SamplingOptions> SamplingOptions::FromProto(const v1::SamplingParams& params) {
  if (!(params.temperature() >= 0) || !std::isfinite(params.temperature()))
    return OutOfRange("temperature", params.temperature(), "a finite number of at least 0 (0: greedy)");
  if (!(params.top_p() >= 0 && params.top_p() <= 1)) return OutOfRange("top_p", params.top_p(), "in (0, 1]");
  if (!(params.min_p() >= 0 && params.min_p() <= 1)) return OutOfRange("min_p", params.min_p(), "in [0, 1]");
  if (params.max_new_tokens() < 1) return OutOfRange("max_new_tokens", params.max_new_tokens(), "at least 1");
  if (params.min_new_tokens() < 0 || params.min_new_tokens() > params.max_new_tokens())
    return OutOfRange("min_new_tokens", params.min_new_tokens(), "between 0 and max_new_tokens");
  if (static_cast<size_t>(params.stop_strings_size()) > kMaxStopStrings)
    return OutOfRange("stop_strings' number", params.stop_strings_size(), absl::StrCat("at most ", kMaxStopStrings));
  for (const std::string& stop : params.stop_strings()) {
    if (stop.empty() || stop.size() > kMaxStopStringBytes)
      return OutOfRange("stop_strings: a length", static_cast<double>(stop.size()),
                        absl::StrCat("between 1 and ", kMaxStopStringBytes, " bytes"));
  }
  SamplingOptions options;
  options.temperature = params.temperature();
  options.top_k = std::max(params.top_k(), 0);
  options.top_p = params.top_p() == 0 ? 1.0 : params.top_p();
  options.min_p = params.min_p();
  options.seed = params.seed();
  options.max_new_tokens = params.max_new_tokens();
  options.min_new_tokens = params.min_new_tokens();
  options.ignore_eos = params.ignore_eos();
  options.stop_token_ids.assign(params.stop_token_ids().begin(), params.stop_token_ids().end());
  options.stop_strings.assign(params.stop_strings().begin(), params.stop_strings().end());
  return options;
}

}  // namespace manta::gen

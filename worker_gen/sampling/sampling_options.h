// How a request wants its tokens drawn: manta.v1.SamplingParams, checked once when the request arrives. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "manta/v1/common.pb.h"

namespace manta::gen {

struct SamplingOptions {
  double temperature = 1.0;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  double top_p = 1.0;        // 1: off
  double min_p = 0.0;        // 0: off
  uint64_t seed = 0;
  int32_t max_new_tokens = 0;
  int32_t min_new_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;

  bool greedy() const { return temperature == 0.0; }
  bool filters() const { return top_k > 0 || top_p < 1.0 || min_p > 0.0; }

  // INVALID_ARGUMENT names the field, its value and the range; a top_p of 0 (unset on the wire) means 1.
  static absl::StatusOr<SamplingOptions> FromProto(const v1::SamplingParams& params);
};

}  // namespace manta::gen

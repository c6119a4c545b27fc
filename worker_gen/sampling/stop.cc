#include "worker_gen/sampling/stop.h"

#include <algorithm>

#include "common/base/check.h"

namespace manta::gen {

StopChecker::StopChecker(const SamplingOptions& options, absl::Span<const int32_t> eos_ids,
                         std::unique_ptr<TextStream> text)
    : max_new_tokens_(options.max_new_tokens),
      min_new_tokens_(options.min_new_tokens),
      stop_ids_(options.stop_token_ids),
      stop_strings_(options.stop_strings),
      text_(std::move(text)) {
  if (!options.ignore_eos) stop_ids_.insert(stop_ids_.end(), eos_ids.begin(), eos_ids.end());
  std::sort(stop_ids_.begin(), stop_ids_.end());
  for (const std::string& stop : stop_strings_) longest_ = std::max(longest_, stop.size());
  MANTA_CHECK(stop_strings_.empty() || text_ != nullptr);
}

v1::FinishReason StopChecker::Append(int32_t token) {
  ++num_tokens_;
  const bool may_stop = num_tokens_ > min_new_tokens_;
  if (may_stop && std::binary_search(stop_ids_.begin(), stop_ids_.end(), token)) return v1::FINISH_REASON_STOP;
  if (!stop_strings_.empty() && FindStopString(text_->Append(token)) && may_stop) return v1::FINISH_REASON_STOP;
  stop_string_.clear();
  return num_tokens_ >= max_new_tokens_ ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_UNSPECIFIED;
}

bool StopChecker::FindStopString(std::string_view piece) {
  if (piece.empty()) return false;
  tail_.append(piece);
  size_t first = std::string::npos;  // where the earliest match ends
  for (const std::string& stop : stop_strings_) {
    const size_t at = tail_.find(stop);
    if (at != std::string::npos && at + stop.size() < first) {
      first = at + stop.size();
      stop_string_ = stop;
    }
  }
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return first != std::string::npos;
}

}  // namespace manta::gen

#include "worker_train/engine/batch_view.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::train {
namespace {

template <typename T>
absl::StatusOr<std::span<const T>> Array(const std::string& bytes, size_t count, const char* name, bool optional) {
  if (optional && bytes.empty()) return std::span<const T>();
  if (bytes.size() != count * sizeof(T)) {
    return absl::InvalidArgumentError(absl::StrCat("batch.", name, " has ", bytes.size(), " bytes; ", count,
                                                   " elements of ", sizeof(T), " are expected"));
  }
  return std::span(reinterpret_cast<const T*>(bytes.data()), count);
}

template <typename T>
std::span<const T> Part(std::span<const T> all, size_t start, size_t count) {
  return all.empty() ? all : all.subspan(start, count);
}

}  // namespace

absl::StatusOr<BatchView> ViewBatch(const v1::PackedBatch& batch) {
  BatchView view;
  if (batch.lengths().size() % sizeof(int32_t) != 0) {
    return absl::InvalidArgumentError("batch.lengths is not a whole number of 32-bit integers");
  }
  const size_t sequences = batch.lengths().size() / sizeof(int32_t);
  MANTA_ASSIGN_OR_RETURN(view.lengths, Array<int32_t>(batch.lengths(), sequences, "lengths", false));
  size_t tokens = 0;
  for (size_t i = 0; i < sequences; ++i) {
    if (view.lengths[i] <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("batch.lengths[", i, "] is ", view.lengths[i]));
    }
    tokens += static_cast<size_t>(view.lengths[i]);
  }
  MANTA_ASSIGN_OR_RETURN(view.tokens, Array<int32_t>(batch.tokens(), tokens, "tokens", false));
  MANTA_ASSIGN_OR_RETURN(view.token_mask, Array<float>(batch.token_mask(), tokens, "token_mask", true));
  MANTA_ASSIGN_OR_RETURN(view.sample_mask, Array<float>(batch.sample_mask(), sequences, "sample_mask", true));
  MANTA_ASSIGN_OR_RETURN(view.advantages, Array<float>(batch.advantages(), tokens, "advantages", true));
  MANTA_ASSIGN_OR_RETURN(view.prev_logprobs, Array<float>(batch.prev_logprobs(), tokens, "prev_logprobs", true));
  MANTA_ASSIGN_OR_RETURN(view.generation_logprobs,
                         Array<float>(batch.generation_logprobs(), tokens, "generation_logprobs", true));
  MANTA_ASSIGN_OR_RETURN(view.reference_logprobs,
                         Array<float>(batch.reference_logprobs(), tokens, "reference_logprobs", true));
  MANTA_ASSIGN_OR_RETURN(view.rewards, Array<float>(batch.rewards(), sequences, "rewards", true));
  return view;
}

absl::StatusOr<std::vector<BatchView>> ViewMicrobatches(const v1::PackedBatch& batch) {
  MANTA_ASSIGN_OR_RETURN(const BatchView all, ViewBatch(batch));
  std::vector<BatchView> microbatches;
  if (batch.microbatch_sizes_size() == 0) {
    microbatches.push_back(all);
    return microbatches;
  }
  size_t sequence = 0, token = 0;
  for (int32_t size : batch.microbatch_sizes()) {
    if (size < 0 || sequence + static_cast<size_t>(size) > all.lengths.size()) {
      return absl::InvalidArgumentError(absl::StrCat("batch.microbatch_sizes: ", size, " more sequences after ",
                                                     sequence, ", of ", all.lengths.size()));
    }
    const auto count = static_cast<size_t>(size);
    BatchView view;
    view.lengths = all.lengths.subspan(sequence, count);
    size_t tokens = 0;
    for (int32_t length : view.lengths) tokens += static_cast<size_t>(length);
    view.tokens = all.tokens.subspan(token, tokens);
    view.token_mask = Part(all.token_mask, token, tokens);
    view.sample_mask = Part(all.sample_mask, sequence, count);
    view.advantages = Part(all.advantages, token, tokens);
    view.prev_logprobs = Part(all.prev_logprobs, token, tokens);
    view.generation_logprobs = Part(all.generation_logprobs, token, tokens);
    view.reference_logprobs = Part(all.reference_logprobs, token, tokens);
    view.rewards = Part(all.rewards, sequence, count);
    view.first_token = token;
    microbatches.push_back(view);
    sequence += count;
    token += tokens;
  }
  if (sequence != all.lengths.size()) {
    return absl::InvalidArgumentError(absl::StrCat("batch.microbatch_sizes add up to ", sequence, ", the batch has ",
                                                   all.lengths.size(), " sequences"));
  }
  return microbatches;
}

}  // namespace manta::train

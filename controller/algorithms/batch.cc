#include "controller/algorithms/batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/packed.h"

namespace manta::controller {

GlobalCounts CountValid(std::span<const Sequence> sequences) {
  GlobalCounts counts;
  for (const Sequence& sequence : sequences) {
    double tokens = 0;
    for (size_t t = 1; t < sequence.token_mask.size(); ++t) tokens += sequence.token_mask[t];
    counts.valid_tokens += tokens * sequence.sample_mask;
    counts.valid_sequences += sequence.sample_mask;
  }
  return counts;
}

std::vector<int32_t> NewTokens(std::span<const Sequence> sequences) {
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // In order, what a sequence shares with any before it, it shares with the one right before it.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Sequence &x = sequences[a], &y = sequences[b];
    return x.group != y.group ? x.group < y.group : std::ranges::lexicographical_compare(x.tokens, y.tokens);
  });
  std::vector<int32_t> counts(sequences.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Sequence& sequence = sequences[order[i]];
    const bool first = i == 0 || sequences[order[i - 1]].group != sequence.group;
    const std::span<const int32_t> before = first ? std::span<const int32_t>() : sequences[order[i - 1]].tokens;
    const auto shared = std::ranges::mismatch(before, sequence.tokens).in2 - sequence.tokens.begin();
    counts[order[i]] = static_cast<int32_t>(static_cast<std::ptrdiff_t>(sequence.tokens.size()) - shared);
  }
  return counts;
}

v1::PackedBatch PackForRank(std::span<const Sequence> sequences, const ShardPlan& plan, int rank) {
  v1::PackedBatch batch;
  for (const auto& microbatch : plan.microbatches[rank]) {
    batch.add_microbatch_sizes(static_cast<int>(microbatch.size()));
    for (int index : microbatch) {
      const Sequence& sequence = sequences[index];
      const size_t length = sequence.tokens.size();
      const auto fits = [length](std::span<const float> values) { return values.empty() || values.size() == length; };
      MANTA_CHECK(sequence.token_mask.size() == length && fits(sequence.advantages) && fits(sequence.prev_logprobs) &&
                  fits(sequence.generation_logprobs) && fits(sequence.reference_logprobs))
          << "sequence " << index << ": per-token arrays differ in length";
      AppendPacked(batch.mutable_lengths(), static_cast<int32_t>(length));
      AppendPacked(batch.mutable_tokens(), sequence.tokens);
      AppendPacked(batch.mutable_token_mask(), sequence.token_mask);
      AppendPacked(batch.mutable_advantages(), sequence.advantages);
      AppendPacked(batch.mutable_prev_logprobs(), sequence.prev_logprobs);
      AppendPacked(batch.mutable_generation_logprobs(), sequence.generation_logprobs);
      AppendPacked(batch.mutable_reference_logprobs(), sequence.reference_logprobs);
      AppendPacked(batch.mutable_sample_mask(), sequence.sample_mask);
      AppendPacked(batch.mutable_rewards(), sequence.reward);
    }
  }
  return batch;
}

absl::Status UnpackFromRank(std::string_view packed, const ShardPlan& plan, int rank,
                            std::span<const Sequence> sequences, std::vector<std::vector<float>>& rows) {
  size_t expected = 0;
  for (const auto& microbatch : plan.microbatches[rank]) {
    for (int index : microbatch) expected += sequences[index].tokens.size() * sizeof(float);
  }
  if (packed.size() != expected) {
    return absl::InternalError(absl::StrCat("rank ", rank, " answered ", packed.size(),
                                            " bytes of values per token, expected ", expected));
  }
  const char* from = packed.data();
  for (const auto& microbatch : plan.microbatches[rank]) {
    for (int index : microbatch) {
      rows[index].resize(sequences[index].tokens.size());
      const size_t bytes = rows[index].size() * sizeof(float);
      std::memcpy(rows[index].data(), from, bytes);
      from += bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace manta::controller

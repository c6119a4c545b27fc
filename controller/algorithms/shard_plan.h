// Which sequence goes to which data-parallel rank and microbatch.
//
// A pure function of the lengths, so that a run can be repeated. Every rank gets the same number of microbatches, since
// ranks meet in collectives once a microbatch at most; a rank that has fewer sequences ends on empty ones. Losses are
// normalised by global counts, so the plan changes nothing but rounding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "controller/algorithms/packing.h"

namespace manta::controller {

struct ShardOptions {
  int num_ranks = 1;
  // Exactly one of the two bounds a microbatch: tokens (sequence packing, dynamic batching) or sequences.
  int64_t max_tokens = 0;
  int64_t max_sequences = 0;
  PackingAlgorithm algorithm = PackingAlgorithm::kFirstFitDecreasing;  // for a bound in tokens
  uint64_t seed = 0;                                                   // of first_fit_shuffle
};

struct ShardPlan {
  // [num_ranks][num_microbatches][sequences]: indices into the lengths.
  std::vector<std::vector<std::vector<int>>> microbatches;

  int num_microbatches() const { return microbatches.empty() ? 0 : static_cast<int>(microbatches[0].size()); }
};

// Balances tokens over ranks (longest first to the rank with the fewest tokens) and packs each rank's sequences into
// microbatches: by the algorithm, or, for a bound in sequences, those of like length together. A sequence longer than
// max_tokens is INVALID_ARGUMENT and says its length.
//
// `groups`: [lengths] or empty. What sequences of one group begin with is computed once where they share a microbatch,
// so they are kept on one rank and next to each other (first fit, group by group), unless that costs more than a
// twentieth in the ranks' balance, or an eighth more microbatches than the algorithm makes. `new_tokens`: [lengths], or empty for the lengths themselves: how
// many of a sequence's tokens are not shared with those before it in its group; what ranks are balanced by.
[[nodiscard]] absl::StatusOr<ShardPlan> PlanShards(absl::Span<const int32_t> lengths, const ShardOptions& options,
                                                   absl::Span<const int64_t> groups = {},
                                                   absl::Span<const int32_t> new_tokens = {});

// Largest over mean of the ranks' tokens, minus one; 0 is perfect.
double TokenImbalance(const ShardPlan& plan, absl::Span<const int32_t> lengths);

}  // namespace manta::controller

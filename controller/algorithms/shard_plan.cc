#include "controller/algorithms/shard_plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

std::vector<int> LongestFirst(absl::Span<const int32_t> lengths) {
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return lengths[a] > lengths[b]; });
  return order;
}

// First fit over sequences that come longest first.
std::vector<std::vector<int>> Pack(const std::vector<int>& sequences, absl::Span<const int32_t> lengths,
                                   const ShardOptions& options) {
  std::vector<std::vector<int>> bins;
  std::vector<int64_t> tokens;
  for (int sequence : sequences) {
    size_t bin = 0;
    while (bin < bins.size() && !(options.max_tokens > 0
                                      ? tokens[bin] + lengths[sequence] <= options.max_tokens
                                      : static_cast<int64_t>(bins[bin].size()) < options.max_sequences)) {
      ++bin;
    }
    if (bin == bins.size()) {
      bins.emplace_back();
      tokens.push_back(0);
    }
    bins[bin].push_back(sequence);
    tokens[bin] += lengths[sequence];
  }
  return bins;
}

}  // namespace

absl::StatusOr<ShardPlan> PlanShards(absl::Span<const int32_t> lengths, const ShardOptions& options) {
  MANTA_CHECK(options.num_ranks > 0);
  MANTA_CHECK((options.max_tokens > 0) != (options.max_sequences > 0));
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (options.max_tokens > 0 && lengths[i] > options.max_tokens) {
      return UserError(absl::StrCat("a sequence of ", lengths[i], " tokens does not fit in a microbatch of ",
                                    options.max_tokens,
                                    " tokens: raise policy.sequence_packing.train_mb_tokens (or the like) or lower "
                                    "policy.max_total_sequence_length"));
    }
  }
  const std::vector<int> order = LongestFirst(lengths);
  std::vector<std::vector<int>> of_rank(options.num_ranks);
  std::vector<int64_t> tokens(options.num_ranks, 0);
  for (int sequence : order) {
    const auto rank = std::min_element(tokens.begin(), tokens.end()) - tokens.begin();
    of_rank[rank].push_back(sequence);
    tokens[rank] += lengths[sequence];
  }
  ShardPlan plan;
  size_t most = 1;
  for (const auto& sequences : of_rank) {
    plan.microbatches.push_back(Pack(sequences, lengths, options));
    most = std::max(most, plan.microbatches.back().size());
  }
  for (auto& microbatches : plan.microbatches) microbatches.resize(most);
  return plan;
}

double TokenImbalance(const ShardPlan& plan, absl::Span<const int32_t> lengths) {
  int64_t total = 0, largest = 0;
  for (const auto& rank : plan.microbatches) {
    int64_t tokens = 0;
    for (const auto& microbatch : rank) {
      for (int sequence : microbatch) tokens += lengths[sequence];
    }
    total += tokens;
    largest = std::max(largest, tokens);
  }
  if (total == 0) return 0;
  return static_cast<double>(largest) * static_cast<double>(plan.microbatches.size()) / static_cast<double>(total) - 1;
}

}  // namespace manta::controller

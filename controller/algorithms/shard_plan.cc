#include "controller/algorithms/shard_plan.h"

#include <algorithm>
#include <map>
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

using RankSequences = std::vector<std::vector<int>>;  // [num_ranks]

RankSequences DealLongestFirst(absl::Span<const int32_t> lengths, int num_ranks) {
  RankSequences of_rank(num_ranks);
  std::vector<int64_t> tokens(num_ranks, 0);
  for (int sequence : LongestFirst(lengths)) {
    const auto rank = std::min_element(tokens.begin(), tokens.end()) - tokens.begin();
    of_rank[rank].push_back(sequence);
    tokens[rank] += lengths[sequence];
  }
  return of_rank;
}

// Whole groups, the largest first to the rank with the fewest tokens.
RankSequences DealGroups(absl::Span<const int32_t> tokens, absl::Span<const int64_t> groups, int num_ranks) {
  struct Group {
    std::vector<int> sequences;
    int64_t tokens = 0;
  };
  std::map<int64_t, Group> by_number;
  for (size_t i = 0; i < tokens.size(); ++i) {
    Group& group = by_number[groups[i]];
    group.sequences.push_back(static_cast<int>(i));
    group.tokens += tokens[i];
  }
  std::vector<Group> order;
  for (auto& [number, group] : by_number) order.push_back(std::move(group));
  std::stable_sort(order.begin(), order.end(), [](const Group& a, const Group& b) { return a.tokens > b.tokens; });
  RankSequences of_rank(num_ranks);
  std::vector<int64_t> of_rank_tokens(num_ranks, 0);
  for (const Group& group : order) {
    const auto rank = std::min_element(of_rank_tokens.begin(), of_rank_tokens.end()) - of_rank_tokens.begin();
    of_rank[rank].insert(of_rank[rank].end(), group.sequences.begin(), group.sequences.end());
    of_rank_tokens[rank] += group.tokens;
  }
  return of_rank;
}

// The sequences group by group, cut into pieces of equal tokens: at most one group a cut is on two ranks.
RankSequences CutByGroup(absl::Span<const int32_t> tokens, absl::Span<const int64_t> groups, int num_ranks) {
  std::vector<int> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return groups[a] < groups[b]; });
  const int64_t total = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  RankSequences of_rank(num_ranks);
  int64_t before = 0, rank = 0;
  for (int sequence : order) {
    // By where the sequence's middle lies; one that adds nothing stays with those before it.
    const int64_t twice_middle = 2 * before + tokens[sequence];
    if (tokens[sequence] > 0) rank = std::min<int64_t>(twice_middle * num_ranks / (2 * total), num_ranks - 1);
    of_rank[rank].push_back(sequence);
    before += tokens[sequence];
  }
  return of_rank;
}

int64_t MostTokens(const RankSequences& of_rank, absl::Span<const int32_t> lengths) {
  int64_t most = 0;
  for (const auto& sequences : of_rank) {
    int64_t tokens = 0;
    for (int sequence : sequences) tokens += lengths[sequence];
    most = std::max(most, tokens);
  }
  return most;
}

using Microbatches = std::vector<std::vector<int>>;

Microbatches OfSequences(const Bins& bins, const std::vector<int>& sequences) {
  Microbatches microbatches;
  for (const auto& bin : bins) {
    microbatches.emplace_back();
    for (int32_t item : bin) microbatches.back().push_back(sequences[item]);
  }
  return microbatches;
}

Microbatches Chunks(const std::vector<int>& sequences, int64_t size) {
  Microbatches microbatches;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (i % static_cast<size_t>(size) == 0) microbatches.emplace_back();
    microbatches.back().push_back(sequences[i]);
  }
  return microbatches;
}

// One rank's sequences; with `grouped` they come group by group, and stay so where that costs few microbatches more.
absl::StatusOr<Microbatches> PackRank(std::vector<int> sequences, absl::Span<const int32_t> lengths,
                                      const ShardOptions& options, bool grouped) {
  if (options.max_tokens == 0) {
    if (!grouped) {
      std::stable_sort(sequences.begin(), sequences.end(), [&](int a, int b) { return lengths[a] > lengths[b]; });
    }
    return Chunks(sequences, options.max_sequences);
  }
  const auto lengths_of = [&] {
    std::vector<int64_t> own;
    for (int sequence : sequences) own.push_back(lengths[sequence]);
    return own;
  };
  Microbatches together;
  if (grouped) {
    std::vector<int32_t> as_given(sequences.size());
    std::iota(as_given.begin(), as_given.end(), 0);
    MANTA_ASSIGN_OR_RETURN(const Bins bins, PackFirstFit(lengths_of(), options.max_tokens, as_given));
    together = OfSequences(bins, sequences);
  }
  std::sort(sequences.begin(), sequences.end());  // the batch's order, which some algorithms keep
  MANTA_ASSIGN_OR_RETURN(const Bins bins, Pack(options.algorithm, lengths_of(), options.max_tokens, options.seed));
  if (grouped && together.size() <= bins.size() + bins.size() / 8) return together;
  return OfSequences(bins, sequences);
}

}  // namespace

absl::StatusOr<ShardPlan> PlanShards(absl::Span<const int32_t> lengths, const ShardOptions& options,
                                     absl::Span<const int64_t> groups, absl::Span<const int32_t> new_tokens) {
  if (new_tokens.empty()) new_tokens = lengths;
  MANTA_CHECK(options.num_ranks > 0);
  MANTA_CHECK((options.max_tokens > 0) != (options.max_sequences > 0));
  MANTA_CHECK(groups.empty() || groups.size() == lengths.size());
  MANTA_CHECK(new_tokens.size() == lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (options.max_tokens > 0 && lengths[i] > options.max_tokens) {
      return UserError(absl::StrCat("a sequence of ", lengths[i], " tokens does not fit in a microbatch of ",
                                    options.max_tokens,
                                    " tokens: raise policy.sequence_packing.train_mb_tokens (or the like) or lower "
                                    "policy.max_total_sequence_length"));
    }
  }
  RankSequences of_rank = DealLongestFirst(lengths, options.num_ranks);
  if (!groups.empty()) {
    const auto most = [&](const RankSequences& ranks) { return MostTokens(ranks, new_tokens); };
    RankSequences by_group = DealGroups(new_tokens, groups, options.num_ranks);
    RankSequences cut = CutByGroup(new_tokens, groups, options.num_ranks);
    if (most(by_group) > most(cut) + most(cut) / 20) by_group = std::move(cut);
    const int64_t apart = MostTokens(of_rank, lengths);
    if (most(by_group) <= apart + apart / 20) of_rank = std::move(by_group);
  }
  ShardPlan plan;
  size_t most = 1;
  for (auto& sequences : of_rank) {
    MANTA_ASSIGN_OR_RETURN(Microbatches microbatches, PackRank(std::move(sequences), lengths, options, !groups.empty()));
    plan.microbatches.push_back(std::move(microbatches));
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

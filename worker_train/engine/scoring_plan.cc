#include "worker_train/engine/scoring_plan.h"

#include <algorithm>

namespace manta::train {
namespace {

// A sequence as far as it is read: its last token is only a target.
struct Read {
  size_t start = 0;
  std::span<const int32_t> tokens;
};

std::vector<Read> SequencesRead(std::span<const int32_t> lengths, std::span<const int32_t> tokens,
                                std::span<const float> wanted) {
  std::vector<Read> reads;
  reads.reserve(lengths.size());
  size_t start = 0;
  for (const int32_t length : lengths) {
    size_t last = start + static_cast<size_t>(length);  // beyond the last token that is read
    const size_t end = last;
    while (last > start + 1 && !wanted.empty() && wanted[last - 1] == 0) --last;
    if (last > start + 1) reads.push_back({start, tokens.subspan(start, last - start)});
    start = end;
  }
  return reads;
}

size_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

ScoringPlan PlanScoring(std::span<const int32_t> lengths, std::span<const int32_t> tokens,
                        std::span<const float> wanted) {
  std::vector<Read> reads = SequencesRead(lengths, tokens, wanted);
  // In order, a sequence has the longest beginning that it shares with any before it in common with the one right
  // before it: a walk through the trie, depth first. Equal sequences stay in the batch's order.
  std::stable_sort(reads.begin(), reads.end(), [](const Read& a, const Read& b) {
    return std::ranges::lexicographical_compare(a.tokens, b.tokens);
  });
  ScoringPlan plan;
  std::vector<int64_t> path;    // rows of the current sequence's tokens
  std::vector<int64_t> scored;  // by depth: the score of the current sequence's token there, or -1
  std::span<const int32_t> before;
  for (const Read& read : reads) {
    const size_t inputs = read.tokens.size() - 1, shared = CommonPrefix(before, read.tokens);
    path.resize(std::min(path.size(), shared));
    if (!path.empty() && path.size() < inputs && plan.layout.cu_prefixes.empty()) {
      plan.layout.cu_prefixes.assign(plan.layout.cu_seqlens.size(), 0);
    }
    if (path.size() < inputs) {  // else all its rows are there
      plan.layout.prefix_rows.insert(plan.layout.prefix_rows.end(), path.begin(), path.end());
      for (size_t depth = path.size(); depth < inputs; ++depth) {
        path.push_back(static_cast<int64_t>(plan.tokens.size()));
        plan.tokens.push_back(read.tokens[depth]);
      }
      plan.layout.cu_seqlens.push_back(static_cast<int64_t>(plan.tokens.size()));
      if (!plan.layout.cu_prefixes.empty()) {
        plan.layout.cu_prefixes.push_back(static_cast<int64_t>(plan.layout.prefix_rows.size()));
      }
    }
    scored.resize(std::min(scored.size(), shared));
    scored.resize(read.tokens.size(), -1);
    for (size_t depth = 1; depth < read.tokens.size(); ++depth) {
      const size_t place = read.start + depth;
      if (!wanted.empty() && wanted[place] == 0) continue;
      if (scored[depth] < 0) {
        scored[depth] = static_cast<int64_t>(plan.rows.size());
        plan.rows.push_back(path[depth - 1]);
        plan.targets.push_back(read.tokens[depth]);
      }
      plan.places.push_back(static_cast<int64_t>(place));
      plan.scores.push_back(scored[depth]);
    }
    before = read.tokens;
  }
  return plan;
}

}  // namespace manta::train

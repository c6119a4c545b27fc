#include "common/tokenizer/merge.h"

#include <algorithm>
#include <cstring>
#include <queue>

namespace manta::tokenizer {
namespace {

constexpr size_t kShort = 48;

// Keeps the merge of each adjacent pair in an array, and looks for the least each time.
void MergeShort(const MergeTable& table, int32_t* symbols, size_t* num_symbols) {
  size_t n = *num_symbols;
  uint32_t ranks[kShort];  // ranks[i], made[i]: the merge of symbols i and i + 1
  int32_t made[kShort];
  for (size_t i = 0; i + 1 < n; ++i) {
    const Merge merge = table.Find(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank;
    made[i] = merge.id;
  }
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    symbols[best] = made[best];
    --n;
    std::memmove(symbols + best + 1, symbols + best + 2, (n - best - 1) * sizeof(int32_t));
    if (best + 1 < n) {
      std::memmove(ranks + best + 1, ranks + best + 2, (n - best - 2) * sizeof(uint32_t));
      std::memmove(made + best + 1, made + best + 2, (n - best - 2) * sizeof(int32_t));
      const Merge right = table.Find(symbols[best], symbols[best + 1]);
      ranks[best] = right.rank;
      made[best] = right.id;
    }
    if (best > 0) {
      const Merge left = table.Find(symbols[best - 1], symbols[best]);
      ranks[best - 1] = left.rank;
      made[best - 1] = left.id;
    }
  }
  *num_symbols = n;
}

struct Candidate {
  uint32_t rank;
  uint32_t at;  // of the left symbol
  int32_t left, right, made;
  // The least comes out of the queue first.
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

// A linked list of symbols and a queue of merges; entries that no longer hold are dropped when they come up.
class LongMerger {
 public:
  LongMerger(const MergeTable& table, int32_t* symbols, size_t num_symbols)
      : table_(table), symbols_(symbols), size_(static_cast<uint32_t>(num_symbols)), next_(size_), previous_(size_) {
    for (uint32_t i = 0; i < size_; ++i) {
      next_[i] = i + 1;
      previous_[i] = i == 0 ? size_ : i - 1;
    }
    std::vector<Candidate> candidates;
    candidates.reserve(size_);
    for (uint32_t i = 0; i + 1 < size_; ++i) {
      const Merge merge = table_.Find(symbols_[i], symbols_[i + 1]);
      if (merge.rank != kNoRank) candidates.push_back({merge.rank, i, symbols_[i], symbols_[i + 1], merge.id});
    }
    queue_ = std::priority_queue<Candidate>({}, std::move(candidates));
  }

  size_t Run() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const uint32_t right = next_[top.at];
      if (right >= size_ || symbols_[top.at] != top.left || symbols_[right] != top.right) continue;
      symbols_[top.at] = top.made;
      symbols_[right] = kGone;
      next_[top.at] = next_[right];
      if (next_[right] < size_) previous_[next_[right]] = top.at;
      Consider(previous_[top.at], top.at);
      Consider(top.at, next_[top.at]);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < size_; i = next_[i]) symbols_[kept++] = symbols_[i];
    return kept;
  }

 private:
  static constexpr int32_t kGone = -1;

  void Consider(uint32_t left, uint32_t right) {
    if (left >= size_ || right >= size_) return;
    const Merge merge = table_.Find(symbols_[left], symbols_[right]);
    if (merge.rank != kNoRank) queue_.push({merge.rank, left, symbols_[left], symbols_[right], merge.id});
  }

  const MergeTable& table_;
  int32_t* symbols_;
  uint32_t size_;  // also: no such symbol
  std::vector<uint32_t> next_, previous_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void MergeSymbols(const MergeTable& merges, size_t begin, std::vector<int32_t>* symbols) {
  size_t n = symbols->size() - begin;
  if (n < 2) return;
  if (n <= kShort) {
    MergeShort(merges, symbols->data() + begin, &n);
  } else {
    n = LongMerger(merges, symbols->data() + begin, n).Run();
  }
  symbols->resize(begin + n);
}

}  // namespace manta::tokenizer

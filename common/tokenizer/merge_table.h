// MergeTable: from a pair of adjacent symbols to the rank of their merge and the symbol that it makes. A flat hash
// table with open addressing, since this look-up is most of what BPE does: 280,000 merges (Llama 3) take 8 MB and a
// look-up one cache miss. Const and thread-safe once filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace manta::tokenizer {

struct Merge {
  uint32_t rank;  // lower merges first; kNoRank where the pair does not merge
  int32_t id;
};
inline constexpr uint32_t kNoRank = UINT32_MAX;

class MergeTable {
 public:
  MergeTable() { Reserve(0); }
  // Drops what is there, and makes room.
  void Reserve(size_t num_merges) {
    int bits = 4;
    while ((size_t{1} << bits) < num_merges * 2) ++bits;
    shift_ = 64 - bits;
    mask_ = (size_t{1} << bits) - 1;
    slots_.assign(mask_ + 1, Slot{kEmpty, {kNoRank, -1}});
  }

  // A later merge of the same pair replaces the earlier. No more than were reserved.
  void Add(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = Key(left, right);
    size_t at = Hash(key);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, merge};
  }

  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    size_t at = Hash(key);
    while (slots_[at].key != key) {
      if (slots_[at].key == kEmpty) return {kNoRank, -1};
      at = (at + 1) & mask_;
    }
    return slots_[at].merge;
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;  // ids are not negative

  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t Hash(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return ((key ^ key >> 32) * 0xD6E8FEB86659FD93u) >> shift_;
  }

  std::vector<Slot> slots_;
  size_t mask_;
  int shift_;
};

}  // namespace manta::tokenizer

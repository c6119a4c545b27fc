// WordCache: the ids of words met before. A table of 64-byte slots, one cache line each, in which a new word replaces
// the old one of its slot: bounded, and a look-up costs one cache miss. Words of more than 32 bytes or 7 ids are not
// kept.
//
// A cache belongs to one thread at a time. WordCachePool (thread-safe) hands them out and keeps a few for the next
// caller.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace manta::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 32;
  static constexpr size_t kMaxIds = 7;

  // A word's bytes as four numbers that, with its length, determine it.
  struct Key {
    uint64_t words[4];
    uint32_t length;
  };

  // `word` has 1 to kMaxBytes bytes.
  static Key MakeKey(std::string_view word) {
    Key key{{0, 0, 0, 0}, static_cast<uint32_t>(word.size())};
    const char* p = word.data();
    const size_t n = word.size();
    if (n >= 8) {
      std::memcpy(&key.words[0], p, 8);
      std::memcpy(&key.words[1], p + n - 8, 8);
      if (n > 16) {
        std::memcpy(&key.words[2], p + 8, 8);
        std::memcpy(&key.words[3], p + n - 16, 8);
      }
    } else if (n >= 4) {
      std::memcpy(&key.words[0], p, 4);
      std::memcpy(&key.words[1], p + n - 4, 4);
    } else {
      const auto byte = [p](size_t i) { return uint64_t{static_cast<unsigned char>(p[i])}; };
      key.words[0] = byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16;
    }
    return key;
  }

  WordCache() : memory_(std::calloc(kNumSlots + 1, sizeof(Slot))) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    if (address != 0) slots_ = reinterpret_cast<Slot*>((address + sizeof(Slot) - 1) / sizeof(Slot) * sizeof(Slot));
  }
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  // Appends the word's ids and returns true, or returns false.
  bool Find(const Key& key, std::vector<int32_t>* ids) const {
    if (slots_ == nullptr) return false;
    const Slot& slot = slots_[SlotOf(key)];
    if (slot.length != key.length || std::memcmp(slot.words, key.words, sizeof(key.words)) != 0) return false;
    if (slot.num_ids == 1) {
      ids->push_back(slot.ids[0]);
    } else {
      ids->insert(ids->end(), slot.ids, slot.ids + slot.num_ids);
    }
    return true;
  }

  void Put(const Key& key, const int32_t* ids, size_t num_ids) {
    if (slots_ == nullptr || num_ids > kMaxIds) return;
    Slot& slot = slots_[SlotOf(key)];
    std::memcpy(slot.words, key.words, sizeof(key.words));
    slot.length = static_cast<uint16_t>(key.length);
    slot.num_ids = static_cast<uint16_t>(num_ids);
    std::memcpy(slot.ids, ids, num_ids * sizeof(int32_t));
  }

 private:
  struct Slot {
    uint64_t words[4];
    uint16_t length;  // 0: empty
    uint16_t num_ids;
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Slot) == 64);
  static constexpr int kSlotBits = 16;
  static constexpr size_t kNumSlots = size_t{1} << kSlotBits;  // 4 MB, of which only what is used is ever touched

  static size_t SlotOf(const Key& key) {
    uint64_t h = (key.words[0] ^ key.length) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32 ^ key.words[1]) * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 29 ^ key.words[2] ^ (key.words[3] << 1 | key.words[3] >> 63)) * 0xA0761D6478BD642Fu;
    return h >> (64 - kSlotBits);
  }

  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> memory_;
  Slot* slots_ = nullptr;  // within memory_, aligned; null where there was none: nothing is kept then
};

class WordCachePool {
 public:
  std::unique_ptr<WordCache> Take() {
    {
      absl::MutexLock lock(&mutex_);
      if (!free_.empty()) {
        std::unique_ptr<WordCache> cache = std::move(free_.back());
        free_.pop_back();
        return cache;
      }
    }
    return std::make_unique<WordCache>();
  }
  void Return(std::unique_ptr<WordCache> cache) {
    absl::MutexLock lock(&mutex_);
    if (free_.size() < kMaxFree) free_.push_back(std::move(cache));
  }

 private:
  static constexpr size_t kMaxFree = 16;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace manta::tokenizer

// A runner for tests: no model, but a cache like a real one, and it looks closely.
//
// Each slot of the cache holds the token and position written there, and the weights' version. A sequence's context is
// read back through its block table, as attention would do, and must be its tokens; the token drawn is a hash of that
// context and of the request's seed. So a wrong table, a block shared by mistake or overwritten shows up at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "worker_gen/runner/runner.h"

namespace manta::gen {

class FakeRunner : public Runner {
 public:
  FakeRunner(int32_t num_blocks, int32_t block_size, int32_t vocab_size)
      : block_size_(block_size), vocab_size_(vocab_size), slots_(static_cast<size_t>(num_blocks) * block_size) {}

  absl::Status Step(absl::Span<const SequenceChunk> chunks, absl::Span<absl::StatusOr<SampledToken>> drawn) override {
    if (before_step) before_step();
    if (!error.ok()) return error;
    ++num_steps;
    for (const SequenceChunk& chunk : chunks) {
      num_tokens += static_cast<int64_t>(chunk.tokens.size());
      for (size_t i = 0; i < chunk.tokens.size(); ++i) {
        const int32_t position = chunk.num_computed + static_cast<int32_t>(i);
        SlotAt(chunk, position) = {chunk.tokens[i], position};
      }
    }
    for (size_t i = 0; i < chunks.size(); ++i) {
      const int32_t end = chunks[i].num_computed + static_cast<int32_t>(chunks[i].tokens.size());
      if (chunks[i].fork_of >= 0) ExpectFork(chunks, i);
      const SequenceChunk& from = chunks[i].fork_of >= 0 ? chunks[chunks[i].fork_of] : chunks[i];
      uint64_t hash = 0;
      for (int32_t position = 0; position < end; ++position) {
        const Slot& slot = SlotAt(from, position);
        EXPECT_EQ(slot.position, position);
        hash = Mix(hash, static_cast<uint64_t>(slot.token));
      }
      for (size_t t = 0; t < chunks[i].tokens.size(); ++t) {
        EXPECT_EQ(SlotAt(chunks[i], chunks[i].num_computed + static_cast<int32_t>(t)).token, chunks[i].tokens[t]);
      }
      if (chunks[i].options == nullptr) continue;
      drawn[i] = SampledToken{static_cast<int32_t>(Mix(hash, chunks[i].options->seed) % vocab_size_), -1.0f, -2.0f};
    }
    for (const SequenceChunk& chunk : chunks) {
      if (chunk.fork_of < 0) continue;
      ++num_forks;
      for (int32_t offset = 0; offset < block_size_; ++offset) {
        const int32_t position = (static_cast<int32_t>(chunk.blocks.size()) - 1) * block_size_ + offset;
        SlotAt(chunk, position) = SlotAt(chunks[chunk.fork_of], position);
      }
    }
    return absl::OkStatus();
  }

  // What a request gets when it is alone.
  std::vector<int32_t> Expected(std::vector<int32_t> tokens, uint64_t seed, int32_t num_new) const {
    uint64_t hash = 0;
    for (int32_t token : tokens) hash = Mix(hash, static_cast<uint64_t>(token));
    std::vector<int32_t> fresh;
    for (int32_t i = 0; i < num_new; ++i) {
      fresh.push_back(static_cast<int32_t>(Mix(hash, seed) % vocab_size_));
      hash = Mix(hash, static_cast<uint64_t>(fresh.back()));
    }
    return fresh;
  }

  absl::Status error;                 // of the next steps
  std::function<void()> before_step;  // on the engine's thread
  int64_t num_steps = 0, num_tokens = 0, num_forks = 0;

 private:
  struct Slot {
    int32_t token = -1, position = -1;
  };
  static uint64_t Mix(uint64_t hash, uint64_t value) { return RandomStream(hash, value).NextU64(); }
  // What SequenceChunk promises of a fork.
  void ExpectFork(absl::Span<const SequenceChunk> chunks, size_t i) const {
    const SequenceChunk& fork = chunks[i];
    ASSERT_LT(fork.fork_of, static_cast<int32_t>(i));
    const SequenceChunk& first = chunks[fork.fork_of];
    EXPECT_TRUE(fork.tokens.empty());
    EXPECT_FALSE(first.tokens.empty());
    EXPECT_NE(fork.options, nullptr);
    EXPECT_EQ(fork.num_computed, first.num_computed + static_cast<int32_t>(first.tokens.size()));
    const size_t full = fork.num_computed / block_size_, all = (fork.num_computed + block_size_ - 1) / block_size_;
    ASSERT_EQ(fork.blocks.size(), all);
    for (size_t b = 0; b < all; ++b) EXPECT_EQ(fork.blocks[b] == first.blocks[b], b < full) << "block " << b;
  }
  Slot& SlotAt(const SequenceChunk& chunk, int32_t position) {
    return slots_[static_cast<size_t>(chunk.blocks[position / block_size_]) * block_size_ + position % block_size_];
  }

  const int32_t block_size_, vocab_size_;
  std::vector<Slot> slots_;
};

}  // namespace manta::gen

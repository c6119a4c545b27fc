#include "common/kernels/paged_attention.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "common/kernels/parallel.h"
#include "gtest/gtest.h"

namespace manta::kernels {
namespace {

using Floats = std::vector<float>;

Floats Random(int64_t n, uint64_t seed) {
  RandomStream random(seed);
  Floats x(static_cast<size_t>(n));
  for (float& f : x) f = static_cast<float>(random.NextNormal());
  return x;
}

// Sequences of these lengths in a cache whose blocks are dealt out backwards and in turn, unwritten floats being NaN.
struct Cached {
  Cached(const AttentionShape& shape, const std::vector<int64_t>& lengths, int64_t block_size) : block_size(block_size) {
    int32_t next = 0;
    for (const int64_t length : lengths) {
      tables.emplace_back((length + block_size - 1) / block_size);
      next += static_cast<int32_t>(tables.back().size());
    }
    const int64_t num_blocks = next;
    for (auto& table : tables) {
      for (int32_t& block : table) block = --next;
    }
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int64_t p = 0; p < lengths[s]; ++p) {
        blocks.push_back(tables[s].data());
        positions.push_back(static_cast<int32_t>(p));
      }
    }
    keys.assign(static_cast<size_t>(num_blocks * PagedBlockFloats(shape, block_size)), NAN);
    values = keys;
  }
  PagedCache cache() { return {block_size, keys.data(), values.data()}; }
  PagedTokens tokens() const { return {static_cast<int64_t>(positions.size()), blocks.data(), positions.data()}; }

  int64_t block_size;
  std::vector<std::vector<int32_t>> tables;
  std::vector<const int32_t*> blocks;
  std::vector<int32_t> positions;
  Floats keys, values;
};

TEST(PagedAttentionTest, AgreesWithPackedAttention) {
  const std::vector<int64_t> lengths = {1, 39, 16, 70};
  std::vector<int64_t> cu = {0};
  for (const int64_t length : lengths) cu.push_back(cu.back() + length);
  for (const int64_t kv_heads : {1, 2, 3, 5}) {
    for (const int64_t group : {1, 2, 3, 4, 7}) {
      for (const int64_t dim : {6, 16, 40, 64}) {
        for (const int64_t window : {0, 5, 33}) {
          const AttentionShape shape{kv_heads * group, kv_heads, dim, static_cast<float>(1 / std::sqrt(dim)), window};
          const int64_t row = shape.num_heads * dim;
          const Floats q = Random(cu.back() * row, 1), k = Random(cu.back() * kv_heads * dim, 2);
          const Floats v = Random(cu.back() * kv_heads * dim, 3);
          Floats expected(q.size());
          AttentionForward(shape, {4, cu.data()}, q.data(), k.data(), v.data(), expected.data(), nullptr);
          for (const int64_t block_size : {16, 32, 64, 8, 20}) {
            Cached cached(shape, lengths, block_size);
            StorePaged(shape, cached.tokens(), k.data(), v.data(), cached.cache());
            Floats out(q.size(), NAN);
            AttendPaged(shape, cached.tokens(), q.data(), cached.cache(), out.data());
            if (block_size % 16 == 0) {
              ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
                  << kv_heads << " x " << group << " heads of " << dim << ", window " << window << ", blocks of "
                  << block_size;
              continue;
            }
            for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 2e-6) << block_size;
          }
        }
      }
    }
  }
}

TEST(PagedAttentionTest, OneTokenAtATimeGivesTheSameBits) {
  const AttentionShape shape{4, 2, 24, 0.2f, 20};
  const int64_t length = 50, row = 96, slot = 48;
  const Floats q = Random(length * row, 4), k = Random(length * slot, 5), v = Random(length * slot, 6);
  Floats all(q.size()), one(q.size());
  SetThreads(3);
  Cached cached(shape, {length}, 16);
  StorePaged(shape, cached.tokens(), k.data(), v.data(), cached.cache());
  AttendPaged(shape, cached.tokens(), q.data(), cached.cache(), all.data());
  SetThreads(1);
  Cached again(shape, {length}, 16);
  for (int64_t t = 0; t < length; ++t) {
    const PagedTokens token{1, again.blocks.data() + t, again.positions.data() + t};
    StorePaged(shape, token, k.data() + t * slot, v.data() + t * slot, again.cache());
    AttendPaged(shape, token, q.data() + t * row, again.cache(), one.data() + t * row);
  }
  EXPECT_EQ(std::memcmp(all.data(), one.data(), all.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace manta::kernels

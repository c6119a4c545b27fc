// The paged cache's kernels: against a reference, and that a token's result depends on its own sequence alone.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "tests/gpu/device_memory.h"

namespace manta {
namespace {

using kernels::cuda::PagedAttentionArguments;
using kernels::cuda::Type;
using testing::Empty;
using testing::IntsToDevice;
using testing::Rounded;
using testing::ToDevice;
using testing::ToHost;

struct Shape {
  int64_t heads, kv_heads, head_dim, block_size, window;
};

// Sequences of given lengths in a cache whose blocks are handed out in a random order.
struct Batch {
  Batch(uint64_t seed, const Shape& s, const std::vector<int>& lengths, Type type) : shape(s), lengths(lengths) {
    RandomStream random(seed);
    for (int length : lengths) max_blocks = std::max<int64_t>(max_blocks, (length + s.block_size - 1) / s.block_size);
    num_blocks = max_blocks * static_cast<int64_t>(lengths.size()) + 3;
    std::vector<int32_t> order(num_blocks);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.NextBelow(i)]);
    tables.assign(lengths.size() * max_blocks, 0);
    size_t next = 0;
    for (size_t q = 0; q < lengths.size(); ++q) {
      for (int64_t b = 0; b * s.block_size < lengths[q]; ++b) tables[q * max_blocks + b] = order[next++];
      for (int p = 0; p < lengths[q]; ++p) {
        sequence.push_back(static_cast<int32_t>(q));
        position.push_back(p);
        slots.push_back(int64_t{tables[q * max_blocks + p / s.block_size]} * s.block_size + p % s.block_size);
      }
    }
    const auto normal = [&](int64_t n) {
      std::vector<float> values(n);
      for (float& v : values) v = static_cast<float>(random.NextNormal());
      return Rounded(values, type);
    };
    const int64_t tokens = static_cast<int64_t>(position.size());
    q = normal(tokens * s.heads * s.head_dim);
    k = normal(tokens * s.kv_heads * s.head_dim);
    v = normal(tokens * s.kv_heads * s.head_dim);
  }

  Shape shape;
  std::vector<int> lengths;
  int64_t max_blocks = 0, num_blocks = 0;
  std::vector<int32_t> tables, sequence, position;
  std::vector<int64_t> slots;
  std::vector<float> q, k, v;  // of all tokens, sequence after sequence
};

// The cache filled with all tokens, then attention of the tokens [begin, end) of the batch.
std::vector<float> Attend(const cuda::Api* api, const Batch& b, Type type, int64_t begin, int64_t end, float scale) {
  const Shape& s = b.shape;
  const int64_t cache = b.num_blocks * s.block_size * s.kv_heads * s.head_dim,
                tokens = static_cast<int64_t>(b.slots.size());
  at::Tensor k_cache = Empty(cache, type), v_cache = Empty(cache, type);
  const at::Tensor tk = ToDevice(b.k, type), tv = ToDevice(b.v, type), slots = IntsToDevice(b.slots);
  EXPECT_EQ(api->write_kv_cache(type, tk.data_ptr(), tv.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr(),
                                slots.data_ptr<int64_t>(), tokens, s.kv_heads, s.head_dim, api->current_stream()),
            0);
  const int64_t width = s.heads * s.head_dim;
  const at::Tensor tq = ToDevice({b.q.begin() + begin * width, b.q.begin() + end * width}, type);
  const at::Tensor sequence = IntsToDevice(std::vector<int32_t>(b.sequence.begin() + begin, b.sequence.begin() + end)),
                   position = IntsToDevice(std::vector<int32_t>(b.position.begin() + begin, b.position.begin() + end)),
                   tables = IntsToDevice(b.tables);
  at::Tensor out = Empty((end - begin) * width, type);
  PagedAttentionArguments a;
  a.q = tq.data_ptr();
  a.k_cache = k_cache.data_ptr();
  a.v_cache = v_cache.data_ptr();
  a.out = out.data_ptr();
  a.token_sequence = sequence.data_ptr<int32_t>();
  a.token_position = position.data_ptr<int32_t>();
  a.block_tables = tables.data_ptr<int32_t>();
  a.tokens = end - begin;
  a.max_blocks = b.max_blocks;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.block_size = s.block_size;
  a.window = s.window;
  a.scale = scale;
  EXPECT_EQ(api->paged_attention(type, a, api->current_stream()), 0);
  const absl::Status status = api->synchronize();
  EXPECT_TRUE(status.ok()) << status;
  return ToHost(out);
}

std::vector<double> Reference(const Batch& b, float scale) {
  const Shape& s = b.shape;
  std::vector<double> out(b.q.size());
  std::vector<int64_t> start;
  for (int64_t at = 0; int length : b.lengths) {
    start.push_back(at);
    at += length;
  }
  for (size_t t = 0; t < b.position.size(); ++t) {
    const int p = b.position[t];
    const int64_t first = start[b.sequence[t]];
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = h / (s.heads / s.kv_heads);
      std::vector<double> score(p + 1, -1e300);
      double max = -1e300, total = 0;
      for (int j = 0; j <= p; ++j) {
        if (s.window > 0 && p - j >= s.window) continue;
        double dot = 0;
        for (int64_t i = 0; i < s.head_dim; ++i) {
          dot +=
              double{b.q[(t * s.heads + h) * s.head_dim + i]} * b.k[((first + j) * s.kv_heads + kv) * s.head_dim + i];
        }
        max = std::max(max, score[j] = dot * scale);
      }
      for (double& x : score) total += x = x < -1e299 ? 0 : std::exp(x - max);
      for (int64_t i = 0; i < s.head_dim; ++i) {
        double sum = 0;
        for (int j = 0; j <= p; ++j) sum += score[j] * b.v[((first + j) * s.kv_heads + kv) * s.head_dim + i];
        out[(t * s.heads + h) * s.head_dim + i] = sum / total;
      }
    }
  }
  return out;
}

TEST(GpuPagedAttention, AgreesWithItsFormula) {
  MANTA_NEED_GPU(api);
  for (const Type type : {Type::kF32, Type::kBf16}) {
    for (const Shape& s :
         {Shape{4, 4, 16, 16, 0}, Shape{4, 2, 8, 4, 0}, Shape{8, 2, 64, 16, 0}, Shape{16, 2, 128, 16, 0},
          Shape{3, 1, 80, 16, 0}, Shape{2, 1, 256, 8, 0}, Shape{4, 1, 24, 16, 0}, Shape{8, 4, 64, 16, 20}}) {
      const Batch b(5, s, {1, 17, 60, 133}, type);
      const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
      const std::vector<float> actual = Attend(api, b, type, 0, static_cast<int64_t>(b.slots.size()), scale);
      const std::vector<double> expected = Reference(b, scale);
      double worst = 0;
      for (size_t i = 0; i < actual.size(); ++i) worst = std::max(worst, std::abs(actual[i] - expected[i]));
      std::printf("  paged_attention %s heads %d/%d head_dim %d window %d: worst error %.2g\n",
                  type == Type::kF32 ? "f32" : "bf16", int(s.heads), int(s.kv_heads), int(s.head_dim), int(s.window),
                  worst);
      EXPECT_LE(worst, type == Type::kF32 ? 2e-5 : 1.6e-2);
      EXPECT_FALSE(std::isnan(worst));
    }
  }
}

TEST(GpuPagedAttention, ATokenDependsOnItsOwnSequenceAlone) {
  MANTA_NEED_GPU(api);
  const Shape s{8, 2, 64, 16, 0};
  const Batch together(5, s, {40, 300, 7}, Type::kBf16);
  const std::vector<float> all = Attend(api, together, Type::kBf16, 0, 347, 0.125f);
  // The same sequence by itself, in other blocks and in pieces.
  Batch alone(9, s, {300}, Type::kBf16);
  const auto cut = [](const std::vector<float>& from, int64_t width) {
    return std::vector<float>(from.begin() + 40 * width, from.begin() + 340 * width);
  };
  alone.q = cut(together.q, s.heads * s.head_dim);
  alone.k = cut(together.k, s.kv_heads * s.head_dim);
  alone.v = cut(together.v, s.kv_heads * s.head_dim);
  std::vector<float> pieces;
  for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 1}, {1, 130}, {130, 299}, {299, 300}}) {
    const std::vector<float> piece = Attend(api, alone, Type::kBf16, begin, end, 0.125f);
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(pieces, cut(all, s.heads * s.head_dim));
}

}  // namespace
}  // namespace manta

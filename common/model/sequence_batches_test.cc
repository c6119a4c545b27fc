#include "common/model/sequence_batches.h"

#include "common/base/random.h"
#include "common/model/packed_attention.h"
#include "gtest/gtest.h"

namespace manta::model {
namespace {

TEST(SequenceBatches, EveryTokenHasItsPlace) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed);
    std::vector<int64_t> cu = {0};
    for (size_t s = random.NextBelow(20); s > 0; --s)
      cu.push_back(cu.back() + static_cast<int64_t>(random.NextBelow(40)));
    const int64_t max_scores = 1 + static_cast<int64_t>(random.NextBelow(3000));
    const SequenceBatches batches = BatchSequences({cu, {}, {}}, max_scores, at::kCPU);
    std::vector<at::Tensor> rows = {at::zeros({0}, at::kLong)};
    for (const SequenceBatch& batch : batches.batches) {
      ASSERT_EQ(batch.tokens.numel(), batch.sequences * batch.length);
      ASSERT_TRUE(batch.sequences == 1 || batch.sequences * batch.length * batch.length <= max_scores);
      rows.push_back(batch.tokens);
    }
    ASSERT_TRUE(at::equal(at::cat(rows).index_select(0, batches.places), at::arange(cu.back(), at::kLong)));
  }
}

// In double precision on the CPU attention goes through the batches: each sequence as if it were alone, and its
// gradients.
TEST(SequenceBatches, AttentionOfManyIsThatOfEach) {
  const std::vector<int64_t> cu = {0, 5, 5, 6, 17, 24, 29, 90};
  const auto options = at::TensorOptions(at::kDouble);
  for (const int64_t window : {0, 4}) {
    const AttentionSpec spec{0, 0.3, window};
    const auto leaf = [&](int64_t heads) { return at::randn({90, heads, 8}, options).set_requires_grad(true); };
    const at::Tensor q = leaf(4), k = leaf(2), v = leaf(2), d = at::randn({90, 4, 8}, options);
    const at::Tensor together = PackedAttention(cu).Attend(spec, q, k, v);
    together.backward(d);
    const at::Tensor dq = q.grad().clone(), dk = k.grad().clone(), dv = v.grad().clone();
    for (const at::Tensor& t : {q, k, v}) t.mutable_grad().zero_();
    std::vector<at::Tensor> alone;
    for (size_t s = 0; s + 1 < cu.size(); ++s) {
      const int64_t n = cu[s + 1] - cu[s];
      const auto cut = [&](const at::Tensor& t) { return t.narrow(0, cu[s], n); };
      alone.push_back(PackedAttention({0, n}).Attend(spec, cut(q), cut(k), cut(v)));
    }
    at::cat(alone).backward(d);
    EXPECT_LT((together - at::cat(alone)).abs().max().item<double>(), 1e-12);
    EXPECT_LT((dq - q.grad()).abs().max().item<double>(), 1e-12);
    EXPECT_LT((dk - k.grad()).abs().max().item<double>(), 1e-12);
    EXPECT_LT((dv - v.grad()).abs().max().item<double>(), 1e-12);
  }
}

}  // namespace
}  // namespace manta::model

// Sampling on the GPU draws what worker_gen's sampler draws.
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/random.h"
#include "tests/gpu/device_memory.h"
#include "worker_gen/sampling/sampler.h"

namespace manta {
namespace {

using kernels::cuda::SampledRow;
using kernels::cuda::SamplingRow;
using testing::ToDevice;

std::vector<SampledRow> SampleRows(const cuda::Api* api, const std::vector<float>& logits,
                                   const std::vector<SamplingRow>& rows, int64_t vocab) {
  const at::Tensor tl = ToDevice(logits);
  at::Tensor in = at::empty({static_cast<int64_t>(rows.size() * sizeof(SamplingRow))},
                            at::TensorOptions(at::kCUDA).dtype(at::kByte));
  at::Tensor out = at::empty({static_cast<int64_t>(rows.size() * sizeof(SampledRow))},
                             at::TensorOptions(at::kCUDA).dtype(at::kByte));
  EXPECT_TRUE(api->copy(in.data_ptr(), rows.data(), rows.size() * sizeof(SamplingRow)).ok());
  EXPECT_EQ(api->sample(tl.data_ptr<float>(), static_cast<const SamplingRow*>(in.data_ptr()),
                        static_cast<SampledRow*>(out.data_ptr()), static_cast<int64_t>(rows.size()), vocab,
                        api->current_stream()),
            0);
  std::vector<SampledRow> result(rows.size());
  const absl::Status status = api->copy(result.data(), out.data_ptr(), result.size() * sizeof(SampledRow));
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

TEST(GpuSampling, DrawsWhatTheCpuDraws) {
  MANTA_NEED_GPU(api);
  for (const int64_t vocab : {5, 1000, 32000}) {
    RandomStream random(vocab);
    const int rows = 400;
    std::vector<float> logits(rows * vocab);
    for (float& x : logits) x = static_cast<float>(random.NextNormal() * 3);
    std::vector<SamplingRow> in(rows);
    std::vector<gen::SamplingOptions> options(rows);
    for (int r = 0; r < rows; ++r) {
      // Ties and impossible tokens among them.
      if (r % 5 == 0) {
        for (int64_t i = 0; i < vocab; ++i) logits[r * vocab + i] = std::round(logits[r * vocab + i]);
      }
      if (r % 7 == 0) logits[r * vocab + 1] = -std::numeric_limits<float>::infinity();
      gen::SamplingOptions& o = options[r];
      o.seed = static_cast<uint64_t>(r);
      o.temperature = r % 8 == 0 ? 0.0 : 0.5 + 0.25 * (r % 6);
      if (r % 3 == 1) o.top_k = 1 + r % 50;
      if (r % 4 >= 2) o.top_p = 0.3 + 0.1 * (r % 7);
      if (r % 6 == 5) o.min_p = 0.05;
      in[r] = {static_cast<float>(o.temperature), o.top_k, static_cast<float>(o.top_p), static_cast<float>(o.min_p),
               UniformAt(o.seed, 0, 3)};
    }
    const std::vector<SampledRow> out = SampleRows(api, logits, in, vocab);
    gen::Sampler sampler;
    int different = 0;
    for (int r = 0; r < rows; ++r) {
      const auto expected = sampler.Sample(absl::MakeConstSpan(logits).subspan(r * vocab, vocab), options[r], 3, {});
      ASSERT_TRUE(expected.ok());
      if (out[r].token != expected->token) {
        ++different;  // a uniform number within rounding of an edge
        continue;
      }
      EXPECT_NEAR(out[r].logprob, expected->logprob, 1e-4) << r;
      EXPECT_NEAR(out[r].raw_logprob, expected->raw_logprob, 1e-4) << r;
    }
    std::printf("  sampling, vocabulary %d: %d of %d tokens differ\n", int(vocab), different, rows);
    EXPECT_LE(different, 2);
  }
}

TEST(GpuSampling, LogitsThatAreNoNumbersAreTold) {
  MANTA_NEED_GPU(api);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {1, nan, 2, -inf, -inf, -inf, 1, inf, 2, 1, 3, 2};
  const std::vector<SampledRow> out = SampleRows(api, logits, std::vector<SamplingRow>(4), 3);
  EXPECT_EQ(out[0].token, -1);
  EXPECT_EQ(out[1].token, -1);
  EXPECT_EQ(out[2].token, -1);
  EXPECT_GE(out[3].token, 0);
}

}  // namespace
}  // namespace manta

// What the samples of one prompt share on the GPU: copies of blocks of the cache, and a row of logits.
#include "common/base/random.h"
#include "tests/gpu/device_memory.h"
#include "worker_gen/runner/cuda_paged_attention.h"
#include "worker_gen/runner/cuda_sampling.h"

namespace manta {
namespace {

using gen::SequenceChunk;

TEST(GpuFork, ACopiedBlockIsReadLikeTheFirst) {
  MANTA_NEED_GPU(api);
  constexpr int kBlocks = 200, kBlockSize = 4, kHeads = 4, kKvHeads = 2, kHeadDim = 32, kLayers = 3;
  model::ModelConfig config;
  config.num_layers = kLayers;
  config.num_kv_heads = kKvHeads;
  config.head_dim = kHeadDim;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    gen::CudaPagedAttention attention(api, config, kBlocks, kBlockSize, type, at::Device(at::kCUDA, 0));
    const auto normal = [&](int64_t tokens, int64_t heads) {
      return at::randn({tokens, heads, kHeadDim}, at::TensorOptions(at::kCUDA).dtype(type));
    };
    // Six tokens of a prompt, in block 0 and half of block 1, which then is copied for many.
    const std::vector<int32_t> prompt(6, 0), table = {0, 1};
    SequenceChunk chunk;
    chunk.tokens = prompt;
    chunk.blocks = table;
    attention.SetChunks({&chunk, 1});
    model::AttentionSpec spec;
    spec.scale = 0.2;
    std::vector<at::Tensor> k, v;
    for (spec.layer = 0; spec.layer < kLayers; ++spec.layer) {
      k.push_back(normal(7, kKvHeads));
      v.push_back(normal(7, kKvHeads));
      attention.Attend(spec, normal(6, kHeads), k.back().narrow(0, 0, 6), v.back().narrow(0, 0, 6));
    }
    std::vector<gen::BlockCopy> copies;
    for (int32_t block = 2; block < 150; ++block) copies.push_back({1, block});
    attention.CopyBlocks(copies);
    // A seventh token, the same for the prompt's own sequence, three of the copies, and one that computes it all anew.
    const std::vector<std::vector<int32_t>> tables = {{0, 1}, {0, 2}, {0, 66}, {0, 149}};
    const at::Tensor q = normal(1, kHeads);
    std::vector<SequenceChunk> chunks(tables.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      chunks[i].tokens = absl::MakeConstSpan(prompt).subspan(0, 1);
      chunks[i].num_computed = 6;
      chunks[i].blocks = tables[i];
    }
    for (spec.layer = 0; spec.layer < kLayers; ++spec.layer) {
      attention.SetChunks(chunks);
      const int64_t copied = static_cast<int64_t>(tables.size());
      const at::Tensor out =
          attention.Attend(spec, q.expand({copied, -1, -1}), k[spec.layer].narrow(0, 6, 1).expand({copied, -1, -1}),
                           v[spec.layer].narrow(0, 6, 1).expand({copied, -1, -1}));
      for (int64_t i = 1; i < copied; ++i) EXPECT_TRUE(out.select(0, i).equal(out.select(0, 0))) << "copy " << i;
      const std::vector<int32_t> fresh = {198, 199}, seven(7, 0);
      SequenceChunk alone;
      alone.tokens = seven;
      alone.blocks = fresh;
      attention.SetChunks({&alone, 1});
      const at::Tensor expected = attention.Attend(spec, q.expand({7, -1, -1}), k[spec.layer], v[spec.layer]);
      EXPECT_TRUE(out.select(0, 0).equal(expected.select(0, 6)));
    }
  }
}

TEST(GpuFork, SamplesDrawFromOneRowWhatTheyDrawFromTheirOwn) {
  MANTA_NEED_GPU(api);
  constexpr int kRows = 5, kDraws = 40, kVocab = 3000;
  RandomStream random(3);
  std::vector<float> logits(kRows * kVocab);
  for (float& x : logits) x = static_cast<float>(random.NextNormal() * 2);
  const at::Tensor shared = testing::ToDevice(logits).view({kRows, kVocab});
  std::vector<gen::SamplingOptions> options(kDraws);
  std::vector<SequenceChunk> chunks(kDraws);
  std::vector<gen::Draw> draws, one = {{17, 0}};
  const std::vector<int32_t> banned = {1, 2, 3};
  for (int i = 0; i < kDraws; ++i) {
    options[i].seed = i;
    options[i].temperature = i % 4 == 0 ? 0.0 : 0.8;
    if (i % 3 == 0) options[i].top_k = 20;
    chunks[i].options = &options[i];
    if (i % 10 == 9) chunks[i].banned = banned;
    draws.push_back({2 + i * kRows / kDraws, i});  // the rows from the step's third on
  }
  std::vector<absl::StatusOr<gen::SampledToken>> drawn(kDraws), alone(1);
  absl::Status status = gen::SampleOnGpu(*api, shared, chunks, draws, absl::MakeSpan(drawn));
  ASSERT_TRUE(status.ok()) << status;
  for (int i = 0; i < kDraws; ++i) {
    status = gen::SampleOnGpu(*api, shared.narrow(0, draws[i].row - 2, 1), absl::MakeConstSpan(chunks).subspan(i, 1),
                              one, absl::MakeSpan(alone));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(drawn[i].ok()) << drawn[i].status();
    EXPECT_EQ(drawn[i]->token, alone[0]->token) << i;
    EXPECT_EQ(drawn[i]->logprob, alone[0]->logprob) << i;
  }
}

}  // namespace
}  // namespace manta

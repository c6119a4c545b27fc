// The engine on a toy model: what must not depend on ranks and microbatches, and what must come back after a resume.
#include "worker_train/engine/engine.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/comm/cpu_collective.h"
#include "gtest/gtest.h"

namespace manta::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 50, "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
  "hidden_act": "silu", "attention_bias": false, "torch_dtype": "float32", "an_unknown_key": {"kept": true}})";

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<float> mask, advantages, prev, generation;
};

std::vector<Sequence> MakeSequences(int count) {
  RandomStream random(11);
  std::vector<Sequence> sequences;
  for (int i = 0; i < count; ++i) {
    Sequence s;
    const auto length = static_cast<int32_t>(3 + random.NextBelow(9));
    const auto advantage = static_cast<float>(random.NextNormal());
    for (int32_t t = 0; t < length; ++t) {
      s.tokens.push_back(static_cast<int32_t>((7 * i + 3 * t) % 50));
      s.mask.push_back(t < 2 ? 0.0f : 1.0f);
      s.advantages.push_back(advantage);
      s.prev.push_back(static_cast<float>(-3.9 + 0.1 * random.NextNormal()));
      s.generation.push_back(s.prev.back() + 0.01f);
    }
    sequences.push_back(s);
  }
  return sequences;
}

template <typename T>
void Append(std::string& bytes, const std::vector<T>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Rank `rank` of `world` gets every world-th sequence, in `microbatches` microbatches.
v1::TrainRequest MakeRequest(const std::vector<Sequence>& sequences, int rank, int world, int microbatches, bool grpo) {
  v1::TrainRequest request;
  if (grpo) {
    v1::ClippedPgLoss& loss = *request.mutable_clipped_pg();
    loss.set_ratio_clip_min(0.2);
    loss.set_ratio_clip_max(0.2);
    loss.set_token_level_loss(true);
    loss.set_positive_example_nll_weight(0.1);
  } else {
    request.mutable_nll();
  }
  v1::PackedBatch& batch = *request.mutable_batch();
  std::vector<int32_t> lengths;
  std::vector<float> sample_mask, rewards;
  double tokens = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    for (size_t t = 1; t < s.mask.size(); ++t) tokens += s.mask[t];
    if (static_cast<int>(i) % world != rank) continue;
    lengths.push_back(static_cast<int32_t>(s.tokens.size()));
    sample_mask.push_back(1);
    rewards.push_back(static_cast<float>(i % 2));
    Append(*batch.mutable_tokens(), s.tokens);
    Append(*batch.mutable_token_mask(), s.mask);
    Append(*batch.mutable_advantages(), s.advantages);
    Append(*batch.mutable_prev_logprobs(), s.prev);
    Append(*batch.mutable_generation_logprobs(), s.generation);
  }
  Append(*batch.mutable_lengths(), lengths);
  Append(*batch.mutable_sample_mask(), sample_mask);
  Append(*batch.mutable_rewards(), rewards);
  const int count = static_cast<int>(lengths.size()), each = (count + microbatches - 1) / microbatches;
  for (int i = 0; i < microbatches; ++i) batch.add_microbatch_sizes(std::clamp(count - i * each, 0, each));
  request.set_global_valid_toks(tokens);
  request.set_global_valid_seqs(static_cast<double>(sequences.size()));
  request.set_advance_schedule(true);
  return request;
}

v1::ConfigureTrainerRequest MakeConfigure(int rank, int world) {
  v1::ConfigureTrainerRequest request;
  request.set_random_init(true);
  request.set_init_config_json(kConfig);
  request.set_seed(3);
  request.set_dtype(v1::DTYPE_F32);
  request.set_rank(rank);
  request.set_world_size(world);
  v1::OptimizerConfig& optimizer = *request.mutable_optimizer();
  optimizer.set_name("adamw");
  optimizer.set_lr(1e-2);
  optimizer.set_weight_decay(0.01);
  optimizer.set_beta1(0.9);
  optimizer.set_beta2(0.99);
  optimizer.set_eps(1e-8);
  optimizer.set_max_grad_norm(1.0);
  v1::LrScheduleEntry& entry = *request.mutable_schedule()->add_entries();
  entry.set_name("LinearLR");
  (*entry.mutable_kwargs())["start_factor"] = 0.25;
  (*entry.mutable_kwargs())["total_iters"] = 8;
  return request;
}

struct Trace {
  std::vector<double> losses, norms, rates;
  at::Tensor weights;
};

// What `body` does on every rank of a group of `world`, each in a thread of its own.
void OnRanks(int world, const std::function<void(int rank, std::shared_ptr<comm::Collective>)>& body) {
  static int next = 0;
  const std::string name = absl::StrCat("unix:@engine-test-", getpid(), "-", next++);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);  // of this thread; more would only wait for each other
      if (world == 1) return body(rank, nullptr);
      comm::CpuCollectiveOptions options;
      options.rank = rank;
      options.size = world;
      options.rendezvous = name;
      options.nonce = "0123456789abcdef";
      options.timeout = absl::Seconds(30);
      auto collective = comm::CreateCpuCollective(options);
      ASSERT_TRUE(collective.ok()) << collective.status();
      body(rank, std::move(*collective));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Trace RunTraining(int world, int microbatches, int steps, bool grpo, const std::string& resume_from = "",
                  const std::string& save_to = "", int num_sequences = 7, bool recompute = false) {
  const std::vector<Sequence> sequences = MakeSequences(num_sequences);
  Trace trace;
  OnRanks(world, [&](int rank, std::shared_ptr<comm::Collective> collective) {
    v1::ConfigureTrainerRequest configure = MakeConfigure(rank, world);
    configure.set_resume_from(resume_from);
    configure.set_activation_checkpointing(recompute);
    auto engine = Engine::Create(configure, std::move(collective));
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (int step = 0; step < steps; ++step) {
      v1::TrainReply reply;
      const absl::Status status = (*engine)->Train(MakeRequest(sequences, rank, world, microbatches, grpo), &reply);
      ASSERT_TRUE(status.ok()) << status;
      if (rank != 0) continue;
      trace.losses.push_back(reply.metrics().at("loss"));
      trace.norms.push_back(reply.grad_norm());
      trace.rates.push_back(reply.lr());
    }
    if (!save_to.empty()) {
      v1::SaveCheckpointRequest save;
      save.set_directory(save_to);
      save.set_save_optimizer(true);
      v1::SaveCheckpointReply reply;
      const absl::Status status = (*engine)->Save(save, &reply);
      ASSERT_TRUE(status.ok()) << status;
    }
    if (rank == 0) trace.weights = (*engine)->parameters().flat_values().clone();
  });
  return trace;
}

fs::path TemporaryFolder(const char* name) {
  const fs::path path = fs::temp_directory_path() / absl::StrCat("manta-engine-test-", getpid(), "-", name);
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

TEST(EngineTest, LossFalls) {
  const Trace trace = RunTraining(1, 1, 30, /*grpo=*/false);
  ASSERT_EQ(trace.losses.size(), 30u);
  EXPECT_LT(trace.losses.back(), 0.25 * trace.losses.front());
  EXPECT_DOUBLE_EQ(trace.rates[0], 0.25e-2);
  EXPECT_DOUBLE_EQ(trace.rates[29], 1e-2);
}

TEST(EngineTest, NeitherRanksNorMicrobatchesChangeTheResult) {
  for (bool grpo : {false, true}) {
    const Trace base = RunTraining(1, 1, 4, grpo);
    for (const auto& [world, microbatches] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {2, 1}, {2, 4}, {3, 3}}) {
      SCOPED_TRACE(absl::StrCat("grpo=", grpo, " world=", world, " microbatches=", microbatches));
      const Trace other = RunTraining(world, microbatches, 4, grpo);
      ASSERT_EQ(other.losses.size(), base.losses.size());
      for (size_t i = 0; i < base.losses.size(); ++i) {
        EXPECT_NEAR(other.losses[i], base.losses[i], 1e-5);
        EXPECT_NEAR(other.norms[i], base.norms[i], 1e-5 * std::max(1.0, base.norms[i]));
      }
    }
  }
}

TEST(EngineTest, ARankWithoutSequencesTakesPart) {
  const Trace base = RunTraining(1, 1, 2, true, "", "", /*num_sequences=*/1);
  const Trace other = RunTraining(2, 2, 2, true, "", "", /*num_sequences=*/1);
  ASSERT_EQ(other.losses.size(), 2u);
  EXPECT_NEAR(other.losses[1], base.losses[1], 1e-5);
}

TEST(EngineTest, RerunGivesTheSameBits) {
  const Trace a = RunTraining(2, 2, 3, true), b = RunTraining(2, 2, 3, true);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_TRUE(at::equal(a.weights, b.weights));
}

TEST(EngineTest, ActivationCheckpointingGivesTheSameBits) {
  for (bool grpo : {false, true}) {
    const Trace kept = RunTraining(2, 2, 3, grpo);
    const Trace recomputed = RunTraining(2, 2, 3, grpo, "", "", /*num_sequences=*/7, /*recompute=*/true);
    EXPECT_EQ(kept.losses, recomputed.losses);
    EXPECT_EQ(kept.norms, recomputed.norms);
    EXPECT_TRUE(at::equal(kept.weights, recomputed.weights));
  }
}

TEST(EngineTest, ResumeGivesTheSameBits) {
  for (int world : {1, 2}) {
    const fs::path folder = TemporaryFolder("resume");
    const Trace whole = RunTraining(world, 2, 6, true);
    RunTraining(world, 2, 3, true, "", folder);
    const Trace rest = RunTraining(world, 2, 3, true, folder);
    ASSERT_EQ(rest.losses.size(), 3u);
    EXPECT_EQ(std::vector<double>(whole.losses.begin() + 3, whole.losses.end()), rest.losses);
    EXPECT_EQ(std::vector<double>(whole.rates.begin() + 3, whole.rates.end()), rest.rates);
    EXPECT_TRUE(at::equal(whole.weights, rest.weights));
    // Another number of ranks takes the same checkpoint.
    const Trace other = RunTraining(3 - world, 2, 3, true, folder);
    ASSERT_EQ(other.losses.size(), 3u);
    EXPECT_NEAR(other.losses[2], rest.losses[2], 1e-5);
    fs::remove_all(folder);
  }
}

TEST(EngineTest, LogprobsAgreeWithTheLoss) {
  at::set_num_threads(1);
  auto engine = Engine::Create(MakeConfigure(0, 1), nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const v1::TrainRequest request = MakeRequest(MakeSequences(5), 0, 1, 2, false);
  v1::LogprobRequest logprobs;
  logprobs.mutable_batch()->set_lengths(request.batch().lengths());
  logprobs.mutable_batch()->set_tokens(request.batch().tokens());
  v1::LogprobReply reply;
  ASSERT_TRUE((*engine)->ComputeLogprobs(logprobs, &reply).ok());
  const auto* values = reinterpret_cast<const float*>(reply.logprobs().data());
  const auto* mask = reinterpret_cast<const float*>(request.batch().token_mask().data());
  double sum = 0;
  for (size_t t = 0; t < reply.logprobs().size() / 4; ++t) sum -= mask[t] * values[t];
  v1::TrainReply evaluated;
  ASSERT_TRUE((*engine)->Evaluate(request, &evaluated).ok());
  EXPECT_NEAR(sum / request.global_valid_toks(), evaluated.metrics().at("loss"), 1e-6);
  EXPECT_EQ((*engine)->step(), 0);
  logprobs.set_reference(true);
  EXPECT_EQ((*engine)->ComputeLogprobs(logprobs, &reply).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EngineTest, ReferenceStaysWhereItWas) {
  at::set_num_threads(1);
  v1::ConfigureTrainerRequest configure = MakeConfigure(0, 1);
  configure.set_keep_reference(true);
  auto engine = Engine::Create(configure, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const v1::TrainRequest request = MakeRequest(MakeSequences(5), 0, 1, 1, false);
  v1::LogprobRequest logprobs;
  logprobs.mutable_batch()->set_lengths(request.batch().lengths());
  logprobs.mutable_batch()->set_tokens(request.batch().tokens());
  v1::LogprobReply before, after, reference;
  ASSERT_TRUE((*engine)->ComputeLogprobs(logprobs, &before).ok());
  v1::TrainReply trained;
  ASSERT_TRUE((*engine)->Train(request, &trained).ok());
  ASSERT_TRUE((*engine)->ComputeLogprobs(logprobs, &after).ok());
  logprobs.set_reference(true);
  ASSERT_TRUE((*engine)->ComputeLogprobs(logprobs, &reference).ok());
  EXPECT_EQ(before.logprobs(), reference.logprobs());
  EXPECT_NE(before.logprobs(), after.logprobs());
}

TEST(EngineTest, AGradientThatIsNotFiniteChangesNothing) {
  at::set_num_threads(1);
  auto engine = Engine::Create(MakeConfigure(0, 1), nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::vector<Sequence> sequences = MakeSequences(3);
  sequences[1].advantages.assign(sequences[1].advantages.size(), std::numeric_limits<float>::quiet_NaN());
  const at::Tensor before = (*engine)->parameters().flat_values().clone();
  v1::TrainReply reply;
  const absl::Status status = (*engine)->Train(MakeRequest(sequences, 0, 1, 1, true), &reply);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_TRUE(at::equal(before, (*engine)->parameters().flat_values()));
}

TEST(EngineTest, NamesWhatIsMissing) {
  auto engine = Engine::Create(MakeConfigure(0, 1), nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();
  v1::TrainRequest request = MakeRequest(MakeSequences(2), 0, 1, 1, true);
  request.mutable_batch()->clear_advantages();
  v1::TrainReply reply;
  EXPECT_NE((*engine)->Train(request, &reply).message().find("batch.advantages is missing"), std::string::npos);
  v1::ConfigureTrainerRequest bad = MakeConfigure(0, 1);
  bad.mutable_optimizer()->set_name("sgd");
  EXPECT_NE(Engine::Create(bad, nullptr).status().message().find("sgd"), std::string::npos);
}

}  // namespace
}  // namespace manta::train

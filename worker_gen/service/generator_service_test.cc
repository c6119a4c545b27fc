// The service over a real connection, with a tiny model of random weights.
#include "worker_gen/service/generator_service.h"

#include <filesystem>

#include "common/base/packed.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/comm/weight_source.h"
#include "common/comm/weight_store.h"
#include "common/model/parameters.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::gen {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "a token of the job for tests";
constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": true,
  "initializer_range": 0.2, "hidden_act": "silu", "torch_dtype": "float32", "eos_token_id": 63})";

struct Sample {
  absl::Status status;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<uint64_t> versions;
  int num_chunks = 0;
  v1::GenerateChunk last;
};

class GeneratorServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "generator_service_test_model";
    std::filesystem::create_directories(folder_);
    const auto config = model::ParseModelConfig(kConfig, "config");
    ASSERT_TRUE(config.ok()) << config.status();
    const auto parameters = model::Parameters::Random(*config, 1, at::kFloat);
    ASSERT_TRUE(parameters.ok()) << parameters.status();
    ASSERT_TRUE(parameters->Save(folder_, at::kFloat).ok());
    service_ = std::make_unique<GeneratorService>(
        &lane_, [](const std::string& address) { return rpc::OpenChannel(address, kToken); });
    auto server = rpc::Server::Start({.token = kToken}, {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto channel = rpc::OpenChannel(server_->address(), kToken);
    ASSERT_TRUE(channel.ok()) << channel.status();
    stub_ = v1::GeneratorService::NewStub(*channel);
  }
  void TearDown() override {
    if (service_ != nullptr) service_->BeginStop();
    if (server_ != nullptr) server_->Shutdown(absl::Seconds(5));
    std::filesystem::remove_all(folder_);
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }
  absl::Status Configure(const std::function<void(v1::ConfigureGeneratorRequest&)>& change = {}) {
    v1::ConfigureGeneratorRequest request;
    request.set_model_path(folder_);
    request.set_num_blocks(64);
    request.set_block_size(4);
    request.set_prefix_cache(true);
    if (change) change(request);
    v1::ConfigureGeneratorReply reply;
    grpc::ClientContext context;
    SetDeadline(context);
    return rpc::FromGrpc(stub_->Configure(&context, request, &reply));
  }
  static v1::GenerateRequest Request(const std::vector<int32_t>& prompt, int32_t max_new_tokens) {
    v1::GenerateRequest request;
    for (int32_t token : prompt) AppendPacked(request.mutable_prompt_tokens(), token);
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_max_new_tokens(max_new_tokens);
    request.mutable_sampling()->set_ignore_eos(true);
    return request;
  }
  Sample Generate(const v1::GenerateRequest& request) {
    Sample sample;
    grpc::ClientContext context;
    SetDeadline(context);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateReply reply;
    auto append = [](auto& to, const auto& from) { to.insert(to.end(), from->begin(), from->end()); };
    while (reader->Read(&reply)) {
      for (const v1::GenerateChunk& chunk : reply.chunks()) {
        ++sample.num_chunks;
        append(sample.tokens, Unpack<int32_t>(chunk.tokens(), "tokens"));
        append(sample.logprobs, Unpack<float>(chunk.logprobs(), "logprobs"));
        append(sample.versions, Unpack<uint64_t>(chunk.weight_versions(), "weight_versions"));
        sample.last = chunk;
      }
    }
    sample.status = rpc::FromGrpc(reader->Finish());
    return sample;
  }
  v1::GeneratorStats Stats() {
    v1::GeneratorStats stats;
    grpc::ClientContext context;
    SetDeadline(context);
    EXPECT_TRUE(stub_->GetStats(&context, {}, &stats).ok());
    return stats;
  }

  // What GetStats says is of the end of the last step, which may come after its tokens have.
  void WaitForGeneratedTokens(uint64_t count) {
    for (int i = 0; i < 400 && Stats().generated_tokens() != count; ++i) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_EQ(Stats().generated_tokens(), count);
  }

  std::filesystem::path folder_;
  actor::Lane lane_{"control", 1, 16};
  std::unique_ptr<GeneratorService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::GeneratorService::Stub> stub_;
};

TEST_F(GeneratorServiceTest, OneChunkOrAChunkAToken) {
  ASSERT_TRUE(Configure().ok());
  v1::GenerateRequest request = Request({1, 2, 3, 4, 5}, 6);
  const Sample whole = Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_EQ(whole.num_chunks, 1);
  EXPECT_EQ(whole.tokens.size(), 6u);
  EXPECT_EQ(whole.logprobs.size(), 6u);
  EXPECT_EQ(whole.versions, std::vector<uint64_t>(6, 0));
  EXPECT_EQ(whole.last.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(whole.last.num_prompt_tokens(), 5);
  request.set_stream(true);
  const Sample streamed = Generate(request);
  EXPECT_EQ(streamed.num_chunks, 7);  // six tokens, and how it ended
  EXPECT_EQ(streamed.tokens, whole.tokens);
  EXPECT_EQ(streamed.logprobs, whole.logprobs);
  EXPECT_EQ(streamed.last.cached_prompt_tokens(), 4);
  WaitForGeneratedTokens(12);
}

TEST_F(GeneratorServiceTest, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(Generate(Request({1}, 1)).status.code(), absl::StatusCode::kFailedPrecondition);
  auto error = [&](const std::function<void(v1::ConfigureGeneratorRequest&)>& change) {
    return std::string(Configure(change).message());
  };
  EXPECT_THAT(error([](auto& r) { r.set_model_path("/nowhere"); }), HasSubstr("/nowhere"));
  EXPECT_THAT(error([](auto& r) { r.set_max_model_len(1000); }), HasSubstr("max_model_len is 1000"));
  EXPECT_THAT(error([](auto& r) { r.set_dtype(v1::DTYPE_F16); }), HasSubstr("float32"));
  EXPECT_THAT(error([](auto& r) { r.mutable_device()->set_kind(v1::DEVICE_KIND_CUDA); }), HasSubstr("CUDA"));
  ASSERT_TRUE(Configure().ok());
  EXPECT_THAT(error({}), HasSubstr("already"));
  EXPECT_THAT(std::string(Generate(Request(std::vector<int32_t>(128, 1), 1)).status.message()),
              HasSubstr("the prompt has 128 tokens"));
  EXPECT_EQ(Generate(Request({1}, 0)).status.code(), absl::StatusCode::kInvalidArgument);
  v1::GenerateRequest odd = Request({1}, 1);
  odd.mutable_prompt_tokens()->push_back('x');
  EXPECT_THAT(std::string(Generate(odd).status.message()), HasSubstr("prompt_tokens has 5 bytes"));
  v1::GenerateRequest stop = Request({1}, 1);
  stop.mutable_sampling()->add_stop_strings("END");
  EXPECT_THAT(std::string(Generate(stop).status.message()), HasSubstr("tokenizer"));
}

TEST_F(GeneratorServiceTest, FollowsTheConfigsOverrides) {
  EXPECT_THAT(std::string(Configure([](auto& r) { r.set_hf_config_overrides_json("[]"); }).message()),
              HasSubstr("hf_config_overrides is not a mapping"));
  ASSERT_TRUE(Configure().ok());
  const Sample as_it_is = Generate(Request({1, 2, 3, 4, 5}, 6));
  TearDown();
  SetUp();
  ASSERT_TRUE(Configure([](auto& r) { r.set_hf_config_overrides_json(R"({"rope_theta": 50})"); }).ok());
  const Sample changed = Generate(Request({1, 2, 3, 4, 5}, 6));
  ASSERT_TRUE(changed.status.ok()) << changed.status;
  EXPECT_NE(changed.logprobs, as_it_is.logprobs);
}

TEST_F(GeneratorServiceTest, ClosingTheCallFreesItsBlocks) {
  ASSERT_TRUE(Configure([](auto& r) { r.set_prefix_cache(false); }).ok());
  {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GenerateRequest request = Request({1, 2, 3}, 120);
    request.set_stream(true);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateReply reply;
    ASSERT_TRUE(reader->Read(&reply));
    context.TryCancel();
    while (reader->Read(&reply)) {
    }
    (void)reader->Finish();
  }
  for (int i = 0; i < 200 && Stats().num_blocks_free() != 64; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Stats().num_blocks_free(), 64);
  EXPECT_EQ(Stats().num_running(), 0);
}

TEST_F(GeneratorServiceTest, SeveralSamplesOfAPromptAreWhatTheyAreAlone) {
  ASSERT_TRUE(Configure().ok());
  v1::GenerateRequest request = Request({1, 2, 3, 4, 5}, 6);
  request.mutable_sampling()->set_temperature(1);
  std::vector<Sample> alone;
  for (uint64_t seed : {11, 12, 13}) {
    request.mutable_sampling()->set_seed(seed);
    alone.push_back(Generate(request));
    ASSERT_TRUE(alone.back().status.ok()) << alone.back().status;
  }
  for (uint64_t seed : {11, 12, 13}) request.add_seeds(seed);
  grpc::ClientContext context;
  SetDeadline(context);
  auto reader = stub_->Generate(&context, request);
  v1::GenerateReply reply;
  int chunks = 0;
  while (reader->Read(&reply)) {
    for (const v1::GenerateChunk& chunk : reply.chunks()) {
      ++chunks;
      ASSERT_LT(chunk.sample(), 3);
      EXPECT_FALSE(chunk.has_status());
      EXPECT_EQ(*Unpack<int32_t>(chunk.tokens(), "tokens"), alone[chunk.sample()].tokens);
      EXPECT_EQ(*Unpack<float>(chunk.logprobs(), "logprobs"), alone[chunk.sample()].logprobs);
    }
  }
  EXPECT_EQ(chunks, 3);
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(GeneratorServiceTest, SeveralSamplesOfAPromptComputeItOnce) {
  ASSERT_TRUE(Configure([](auto& r) { r.set_prefix_cache(false); }).ok());
  v1::GenerateRequest request = Request({1, 2, 3, 4, 5}, 6);
  for (uint64_t seed = 0; seed < 16; ++seed) request.add_seeds(seed);
  grpc::ClientContext context;
  SetDeadline(context);
  auto reader = stub_->Generate(&context, request);
  v1::GenerateReply reply;
  int32_t cached = 0;
  while (reader->Read(&reply)) {
    for (const v1::GenerateChunk& chunk : reply.chunks()) cached += chunk.cached_prompt_tokens();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(cached, 15 * 5);
  WaitForGeneratedTokens(16 * 6);
  EXPECT_EQ(Stats().prompt_tokens(), 16u * 5);
  EXPECT_EQ(Stats().cached_prompt_tokens(), 15u * 5);
}

TEST_F(GeneratorServiceTest, EachOfSeveralSamplesFailsByItself) {
  ASSERT_TRUE(Configure().ok());
  v1::GenerateRequest request = Request(std::vector<int32_t>(5000, 1), 6);  // longer than the model allows
  for (uint64_t seed : {1, 2}) request.add_seeds(seed);
  grpc::ClientContext context;
  SetDeadline(context);
  auto reader = stub_->Generate(&context, request);
  v1::GenerateReply reply;
  int failed = 0;
  while (reader->Read(&reply)) {
    for (const v1::GenerateChunk& chunk : reply.chunks()) {
      failed += FromProto(chunk.status()).code() == absl::StatusCode::kInvalidArgument ? 1 : 0;
    }
  }
  EXPECT_EQ(failed, 2);
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(GeneratorServiceTest, PauseAndResume) {
  ASSERT_TRUE(Configure().ok());
  v1::PauseReply paused;
  {
    grpc::ClientContext context;
    SetDeadline(context);
    ASSERT_TRUE(stub_->Pause(&context, {}, &paused).ok());
  }
  std::thread client([&] { EXPECT_TRUE(Generate(Request({1, 2, 3}, 4)).status.ok()); });
  for (int i = 0; i < 400 && Stats().num_waiting() != 1; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Stats().num_waiting(), 1);
  EXPECT_EQ(Stats().generated_tokens(), 0u);
  {
    v1::ResumeReply resumed;
    grpc::ClientContext context;
    SetDeadline(context);
    ASSERT_TRUE(stub_->Resume(&context, {}, &resumed).ok());
  }
  client.join();
  WaitForGeneratedTokens(4);
}

TEST_F(GeneratorServiceTest, FetchesWeightsAndStampsTokensWithTheirVersion) {
  ASSERT_TRUE(Configure().ok());
  const v1::GenerateRequest request = Request({1, 2, 3, 4, 5, 6, 7, 8, 9}, 8);
  const Sample before = Generate(request);
  // A holder of version 5: other weights of the same model.
  const auto config = model::ParseModelConfig(kConfig, "config");
  const auto parameters = model::Parameters::Random(*config, 2, at::kFloat);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  std::vector<comm::LocalSlice> slices;
  parameters->ForEach([&](const model::ParameterSpec& spec, const at::Tensor& value) {
    comm::LocalSlice& slice = slices.emplace_back();
    slice.spec.name = spec.name;
    slice.spec.shape = spec.shape;
    slice.data = value.const_data_ptr();
  });
  comm::WeightStore store;
  ASSERT_TRUE(store.Publish(5, slices).ok());
  comm::WeightSourceService source(&store);
  auto holder = rpc::Server::Start({.token = kToken}, {&source});
  ASSERT_TRUE(holder.ok()) << holder.status();
  auto update = [&](const std::string& address, v1::UpdateWeightsReply* reply) {
    v1::UpdateWeightsRequest update_request;
    update_request.mutable_sources()->set_version(5);
    update_request.mutable_sources()->add_addresses(address);
    update_request.set_verify_checksums(true);
    grpc::ClientContext context;
    SetDeadline(context);
    return rpc::FromGrpc(stub_->UpdateWeights(&context, update_request, reply));
  };
  v1::UpdateWeightsReply reply;
  EXPECT_FALSE(update("127.0.0.1:1", &reply).ok());  // nobody is there: the old weights stay
  EXPECT_EQ(Generate(request).tokens, before.tokens);
  const absl::Status status = update((*holder)->address(), &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.version(), 5u);
  EXPECT_GT(reply.bytes(), 0u);
  const Sample after = Generate(request);
  ASSERT_TRUE(after.status.ok()) << after.status;
  EXPECT_EQ(after.versions, std::vector<uint64_t>(8, 5));
  EXPECT_EQ(after.last.cached_prompt_tokens(), 0);  // nothing of the older weights is reused
  EXPECT_NE(after.logprobs, before.logprobs);
}

}  // namespace
}  // namespace manta::gen

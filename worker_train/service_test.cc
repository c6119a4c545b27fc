// The service over the wire: two ranks in one process.
#include "worker_train/service.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/call_key.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"

namespace manta::train {
namespace {

constexpr const char* kToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16, "hidden_size": 16,
  "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "hidden_act": "silu"})";

struct Rank {
  actor::Lane lane{"train", 1, 4};
  comm::WeightStore store;
  TrainerServiceImpl service{{&lane, &store, kToken, 1}};
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<v1::TrainerService::Stub> stub;

  Rank() {
    auto started = rpc::Server::Start({"127.0.0.1:0", kToken}, {&service});
    EXPECT_TRUE(started.ok()) << started.status();
    server = std::move(*started);
    stub = v1::TrainerService::NewStub(*rpc::OpenChannel(server->address(), kToken));
  }
  ~Rank() {
    service.Abort("the test ends");
    server->Shutdown(absl::ZeroDuration());
    lane.Close();
  }

  grpc::Status Configure(int rank, int world) {
    static const std::string rendezvous = absl::StrCat("unix:@service-test-", getpid());
    v1::ConfigureTrainerRequest request;
    request.set_random_init(true);
    request.set_init_config_json(kConfig);
    request.set_seed(1);
    request.set_dtype(v1::DTYPE_F32);
    request.set_rank(rank);
    request.set_world_size(world);
    request.set_rendezvous(rendezvous);
    request.mutable_device()->set_num_threads(1);
    request.mutable_optimizer()->set_name("adamw");
    request.mutable_optimizer()->set_lr(0.01);
    request.mutable_optimizer()->set_beta1(0.9);
    request.mutable_optimizer()->set_beta2(0.99);
    request.mutable_optimizer()->set_eps(1e-8);
    v1::ConfigureTrainerReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return stub->Configure(&context, request, &reply);
  }

  v1::TrainerState State() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::TrainerState state;
    EXPECT_TRUE(stub->GetState(&context, {}, &state).ok());
    return state;
  }

  grpc::Status Train(v1::TrainReply* reply, const std::string& key = "", const std::string& note = "") {
    const std::vector<int32_t> lengths = {4}, tokens = {1, 2, 3, 4};
    const std::vector<float> token_mask = {0, 1, 1, 1}, sample_mask = {1};
    const auto bytes = [](const auto& v) {
      return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(v[0]));
    };
    v1::TrainRequest request;
    request.mutable_nll();
    request.mutable_batch()->set_lengths(bytes(lengths));
    request.mutable_batch()->set_tokens(bytes(tokens));
    request.mutable_batch()->set_token_mask(bytes(token_mask));
    request.mutable_batch()->set_sample_mask(bytes(sample_mask));
    request.set_global_valid_toks(6);
    request.set_global_valid_seqs(2);
    request.set_note(note);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!key.empty()) context.AddMetadata(rpc::kCallKey, key);
    return stub->Train(&context, request, reply);
  }
};

TEST(TrainerServiceTest, NeedsToBeConfigured) {
  Rank rank;
  v1::TrainReply reply;
  EXPECT_EQ(rank.Train(&reply).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(rank.Configure(0, 1).ok());
  EXPECT_TRUE(rank.Train(&reply).ok());
  EXPECT_EQ(reply.step(), 1);
  EXPECT_EQ(rank.Configure(0, 1).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(TrainerServiceTest, AStepWithAKeyIsTakenOnce) {
  Rank rank;
  EXPECT_FALSE(rank.State().configured());
  ASSERT_TRUE(rank.Configure(0, 1).ok());
  EXPECT_TRUE(rank.State().configured());
  EXPECT_EQ(rank.State().config_hash().size(), 8u);
  EXPECT_EQ(rank.State().trained_key(), "");
  v1::TrainReply first, again, next;
  ASSERT_TRUE(rank.Train(&first, "job/train/1", "the first").ok());
  EXPECT_EQ(rank.State().trained_key(), "job/train/1");
  EXPECT_EQ(rank.State().trained_note(), "the first");
  ASSERT_TRUE(rank.Train(&again, "job/train/1", "the first").ok());
  EXPECT_EQ(again.step(), 1);
  EXPECT_EQ(again.metrics().at("loss"), first.metrics().at("loss"));
  EXPECT_EQ(rank.State().step(), 1);
  ASSERT_TRUE(rank.Train(&next, "job/train/2").ok());
  EXPECT_EQ(next.step(), 2);
  EXPECT_EQ(rank.State().step(), 2);
  EXPECT_EQ(rank.State().running(), "");
  EXPECT_EQ(rank.State().trained_key(), "job/train/2");
  EXPECT_EQ(rank.State().trained_note(), "");
  EXPECT_EQ(rank.State().ended_key(), "job/train/2");
  EXPECT_EQ(rank.State().begun(), 4u);  // the turns: one to configure, three to train
  EXPECT_EQ(rank.State().ended(), 4u);
}

TEST(TrainerServiceTest, AVersionWithAKeyIsPublishedOnce) {
  Rank rank;
  ASSERT_TRUE(rank.Configure(0, 1).ok());
  const auto publish = [&](const std::string& key) {
    v1::PublishWeightsRequest request;
    request.set_version(3);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!key.empty()) context.AddMetadata(rpc::kCallKey, key);
    v1::PublishWeightsReply reply;
    return rank.stub->PublishWeights(&context, request, &reply).error_code();
  };
  EXPECT_EQ(publish("job/publish/3"), grpc::StatusCode::OK);
  EXPECT_EQ(publish("job/publish/3"), grpc::StatusCode::OK);
  EXPECT_EQ(publish(""), grpc::StatusCode::FAILED_PRECONDITION);  // versions only grow
  EXPECT_EQ(rank.State().published_version(), 3u);
}

TEST(TrainerServiceTest, RanksTrainTogetherAndALostPeerEndsTheWait) {
  Rank ranks[2];
  grpc::Status configured[2], trained[2];
  v1::TrainReply replies[2];
  const auto on_both = [&](const std::function<void(int)>& body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  };
  on_both([&](int r) { configured[r] = ranks[r].Configure(r, 2); });
  ASSERT_TRUE(configured[0].ok()) << configured[0].error_message();
  ASSERT_TRUE(configured[1].ok()) << configured[1].error_message();
  on_both([&](int r) { trained[r] = ranks[r].Train(&replies[r]); });
  ASSERT_TRUE(trained[0].ok()) << trained[0].error_message();
  EXPECT_EQ(replies[0].metrics().at("loss"), replies[1].metrics().at("loss"));
  EXPECT_EQ(replies[0].grad_norm(), replies[1].grad_norm());

  // Rank 1 does not come: rank 0 waits in a collective until it is told that its peer is gone.
  grpc::Status waiting;
  std::thread call([&] { waiting = ranks[0].Train(&replies[0]); });
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Time told = absl::Now();
  ranks[0].service.Abort("rank 1 of the trainer is lost: killed by signal 9");
  call.join();
  EXPECT_LT(absl::Now() - told, absl::Seconds(1));
  EXPECT_EQ(waiting.error_code(), grpc::StatusCode::CANCELLED) << waiting.error_message();
  EXPECT_NE(waiting.error_message().find("rank 1"), std::string::npos) << waiting.error_message();
}

}  // namespace
}  // namespace manta::train

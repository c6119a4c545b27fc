// The service over a real connection.
#include "worker_reward/service/reward_service.h"

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_reward/service/batch.h"

namespace manta::reward {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kToken[] = "a token of the job for tests";

class RewardServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = rpc::Server::Start({.token = kToken}, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto channel = rpc::OpenChannel(server_->address(), kToken);
    ASSERT_TRUE(channel.ok()) << channel.status();
    stub_ = v1::RewardService::NewStub(*channel);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(absl::Seconds(5));
  }

  absl::Status Score(const v1::ScoreRequest& request, v1::ScoreReply* reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const grpc::Status status = stub_->Score(&context, request, reply);
    return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
  }

  actor::Lane lane_{"score", 3, 16};
  RewardService service_{&lane_, 3};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::RewardService::Stub> stub_;
};

TEST_F(RewardServiceTest, ScoresABatchInItsOrder) {
  v1::ScoreRequest request;
  request.set_verifier("math");
  request.set_options_json(R"({"num_workers": 8, "deadline_ms": 1000, "options": {"correct": 2}})");
  for (int i = 0; i < 200; ++i) {
    v1::ScoreSample* sample = request.add_samples();
    sample->set_sample_id(std::to_string(i));
    sample->set_response("#### " + std::to_string(i));
    sample->set_ground_truth(i % 3 == 0 ? std::to_string(i) : i % 3 == 1 ? "-1" : "");
  }
  for (int round = 0; round < 5; ++round) {
    v1::ScoreReply reply;
    ASSERT_TRUE(Score(request, &reply).ok());
    ASSERT_EQ(reply.scores_size(), 200);
    for (int i = 0; i < 200; ++i) {
      const v1::SampleScore& score = reply.scores(i);
      EXPECT_EQ(score.sample_id(), std::to_string(i));
      const absl::Status status = FromProto(score.status());
      if (i % 3 == 2) {  // a sample that cannot be scored is an error, and only its own
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(score.reward(), i % 3 == 0 ? 2 : 0);
      EXPECT_EQ(score.extracted_answer(), std::to_string(i));
      EXPECT_EQ(score.components().at("answered"), 1);
    }
  }
}

TEST_F(RewardServiceTest, SaysWhatIsWrongWithACall) {
  v1::ScoreReply reply;
  v1::ScoreRequest request;
  request.add_samples();
  request.set_verifier("nope");
  EXPECT_THAT(std::string(Score(request, &reply).message()), HasSubstr("there is no verifier 'nope'"));
  request.set_verifier("math");
  request.set_options_json("[");
  EXPECT_THAT(std::string(Score(request, &reply).message()), HasSubstr("options_json is not a JSON object"));
  request.set_options_json(R"({"options": {"correkt": 1}})");
  EXPECT_THAT(std::string(Score(request, &reply).message()), HasSubstr("has no option 'correkt'"));
  request.set_options_json(R"({"options": 5})");
  EXPECT_THAT(std::string(Score(request, &reply).message()), HasSubstr("options must be a map"));
  request.clear_options_json();
  request.clear_samples();
  EXPECT_TRUE(Score(request, &reply).ok());
  EXPECT_EQ(reply.scores_size(), 0);
}

TEST_F(RewardServiceTest, ListsVerifiers) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  v1::ListVerifiersReply reply;
  ASSERT_TRUE(stub_->ListVerifiers(&context, {}, &reply).ok());
  EXPECT_THAT(std::vector<std::string>(reply.names().begin(), reply.names().end()), ElementsAre("format", "math"));
}

class ThrowingVerifier : public Verifier {
 public:
  absl::StatusOr<reward::Score> Verify(const VerifierSample& sample, const Deadline& deadline) const override {
    if (sample.response == "throw") throw std::runtime_error("broken");
    if (sample.response == "slow") {
      while (!deadline.passed()) absl::SleepFor(absl::Milliseconds(1));
      return absl::DeadlineExceededError("too slow");
    }
    return reward::Score{.reward = 1};
  }
};

TEST(BatchTest, FailuresStayWithTheirSample) {
  v1::ScoreRequest request;
  v1::ScoreReply reply;
  request.set_deadline_ms_per_sample(5);
  for (const char* response : {"fine", "throw", "slow", "fine"}) request.add_samples()->set_response(response);
  Batch batch(request, &reply, std::make_unique<ThrowingVerifier>());
  EXPECT_TRUE(batch.Run([] { return false; }));
  EXPECT_FALSE(batch.Run([] { return false; }));  // nothing is left
  EXPECT_TRUE(FromProto(reply.scores(0).status()).ok());
  EXPECT_EQ(FromProto(reply.scores(1).status()).message(), "the verifier failed: broken");
  EXPECT_EQ(FromProto(reply.scores(2).status()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(reply.scores(3).reward(), 1);
}

TEST(BatchTest, CancelledCallsStopScoring) {
  v1::ScoreRequest request;
  v1::ScoreReply reply;
  for (int i = 0; i < 3; ++i) request.add_samples();
  Batch batch(request, &reply, std::make_unique<ThrowingVerifier>());
  int asked = 0;
  EXPECT_TRUE(batch.Run([&] { return ++asked > 1; }));
  EXPECT_TRUE(FromProto(reply.scores(0).status()).ok());
  EXPECT_EQ(FromProto(reply.scores(2).status()).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace manta::reward

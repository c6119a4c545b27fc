// Every method of every service says who may call it, and a server keeps to it: each role at each method.
#include <future>

#include "absl/strings/match.h"
#include "common/rpc/method_policy.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "manta/v1/actor.grpc.pb.h"
#include "manta/v1/call.grpc.pb.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "manta/v1/environment.grpc.pb.h"
#include "manta/v1/generator.grpc.pb.h"
#include "manta/v1/node.grpc.pb.h"
#include "manta/v1/rendezvous.grpc.pb.h"
#include "manta/v1/reward.grpc.pb.h"
#include "manta/v1/trainer.grpc.pb.h"
#include "manta/v1/weights.grpc.pb.h"
#include "tests/security/fort.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

// A service whose methods all answer UNIMPLEMENTED.
struct Services {
  v1::ActorService::CallbackService actor;
  v1::CallService::CallbackService call;
  v1::ClusterService::CallbackService cluster;
  v1::ControllerService::CallbackService controller;
  v1::EnvironmentService::CallbackService environment;
  v1::GeneratorService::CallbackService generator;
  v1::NodeService::CallbackService node;
  v1::RewardService::CallbackService reward;
  v1::TrainerService::CallbackService trainer;
  v1::WeightSource::CallbackService weights;
  std::vector<grpc::Service*> all() {
    return {&actor, &call, &cluster, &controller, &environment, &generator, &node, &reward, &trainer, &weights};
  }
  static std::vector<std::string> names() {
    return {v1::ActorService::service_full_name(),       v1::CallService::service_full_name(),
            v1::ClusterService::service_full_name(),     v1::ControllerService::service_full_name(),
            v1::EnvironmentService::service_full_name(), v1::GeneratorService::service_full_name(),
            v1::NodeService::service_full_name(),        v1::RewardService::service_full_name(),
            v1::TrainerService::service_full_name(),     v1::WeightSource::service_full_name()};
  }
};

TEST(Roles, NoServiceIsMissingHere) {
  // Of the proto files that this test is linked with, which are those that have services.
  std::vector<std::string> found;
  for (const char* file : {"actor", "call", "cluster", "common", "controller", "environment", "generator", "journal",
                           "node", "rendezvous", "reward", "shim", "trainer", "weights", "access"}) {
    const auto* descriptor =
        google::protobuf::DescriptorPool::generated_pool()->FindFileByName(absl::StrCat("manta/v1/", file, ".proto"));
    if (descriptor == nullptr) continue;
    for (int i = 0; i < descriptor->service_count(); ++i) found.push_back(descriptor->service(i)->full_name());
  }
  EXPECT_THAT(found, ::testing::IsSubsetOf(Services::names()));
}

TEST(Roles, EveryMethodSaysWho) {
  const auto policy = rpc::MethodPolicy::ForServices(Services::names());
  EXPECT_TRUE(policy.ok()) << policy.status();
}

TEST(Audit, WhatIsForAdminsAloneIsWrittenDown) {
  const auto policy = rpc::MethodPolicy::ForServices(Services::names()).value();
  int audited = 0;
  for (const std::string& name : Services::names()) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* method = policy->Find(absl::StrCat("/", name, "/", service->method(i)->name()));
      ASSERT_NE(method, nullptr);
      if (method->roles == rpc::RoleBit(v1::ROLE_ADMIN)) {
        EXPECT_TRUE(method->audit) << method->path;
      }
      audited += method->audit ? 1 : 0;
    }
  }
  EXPECT_GE(audited, 12);
}

TEST(Roles, EachRoleAtEachMethod) {
  Services services;
  const rpc::RoleTokens tokens("secret");
  const auto server =
      rpc::Server::Start({.token = tokens.KeysOf(v1::ROLE_WORKER)}, services.all()).value();  // a worker's digests do
  const auto policy = rpc::MethodPolicy::ForServices(Services::names()).value();
  int allowed = 0, refused = 0;
  for (const v1::Role role : rpc::kRoles) {
    grpc::GenericStub stub(rpc::OpenChannel(server->address(), tokens.KeysOf(role)).value());
    for (const std::string& name : Services::names()) {
      const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      ASSERT_NE(service, nullptr) << name;
      for (int i = 0; i < service->method_count(); ++i) {
        const std::string path = absl::StrCat("/", name, "/", service->method(i)->name());
        const bool may = (policy->Find(path)->roles & rpc::RoleBit(role)) != 0;
        grpc::ClientContext context;
        context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
        const grpc::Slice nothing;
        grpc::ByteBuffer request(&nothing, 1), reply;
        std::promise<grpc::Status> done;
        stub.UnaryCall(&context, path, {}, &request, &reply,
                       [&](const grpc::Status& status) { done.set_value(status); });
        const grpc::Status status = done.get_future().get();
        EXPECT_EQ(status.error_code(), may ? grpc::StatusCode::UNIMPLEMENTED : grpc::StatusCode::PERMISSION_DENIED)
            << rpc::RoleName(role) << " " << path << ": " << status.error_message();
        EXPECT_FALSE(absl::StrContains(status.error_message(), "no such method")) << path;
        ++(may ? allowed : refused);
      }
    }
  }
  std::printf("%d pairs of a role and a method are allowed, %d refused\n", allowed, refused);
  EXPECT_GT(allowed, 40);
  EXPECT_GT(refused, 40);
}

TEST(Roles, UnknownMethodsAreServedToNobody) {
  Fort fort({.tls = false, .listen = "127.0.0.1:0"});
  grpc::GenericStub stub(rpc::OpenChannel(fort.address(), fort.tokens().KeysOf(v1::ROLE_ADMIN)).value());
  const uint64_t before = rpc::RefusalCount(rpc::Refusal::kMethod);
  for (const char* path : {"/manta.v1.NodeService/Join", "/x/y", "/manta.v1.ControllerService/"}) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    const grpc::Slice nothing;
    grpc::ByteBuffer request(&nothing, 1), reply;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, path, {}, &request, &reply, [&](const grpc::Status& status) { done.set_value(status); });
    EXPECT_EQ(done.get_future().get().error_code(), grpc::StatusCode::UNIMPLEMENTED) << path;
  }
  EXPECT_EQ(rpc::RefusalCount(rpc::Refusal::kMethod), before + 3);
}

TEST(Audit, AdminCallsAreWrittenDown) {
  Fort fort;
  EXPECT_TRUE(Fort::Stop(*fort.Connect(v1::ROLE_ADMIN), "enough").ok());
  EXPECT_TRUE(Fort::GetStatus(*fort.Connect(v1::ROLE_READER)).ok());
  absl::SleepFor(absl::Milliseconds(50));  // the line is written when the call has ended
  const std::string log = fort.AuditLog();
  EXPECT_THAT(log, HasSubstr("call method=/manta.v1.ControllerService/StopRun role=admin peer=ipv4:127.0.0.1:"));
  EXPECT_THAT(log, HasSubstr("certificate=manta://job/admin/admin outcome=OK"));
  EXPECT_FALSE(absl::StrContains(log, "GetStatus"));
  EXPECT_FALSE(fort.head.saw_token);
  for (const v1::Role role : rpc::kRoles) EXPECT_FALSE(absl::StrContains(log, fort.tokens().token(role)));
}

TEST(Audit, WhatACallerWritesMakesNoLines) {
  rpc::AuditLog& log = rpc::AuditLog::Process();
  const auto path = std::filesystem::path(::testing::TempDir()) / absl::StrCat("audit.", getpid());
  ASSERT_TRUE(log.SetFile(path).ok());
  log.Called("method=x\n2026-01-01 call method=forged");
  log.Flush(absl::Seconds(5));
  const std::string content = ReadFile(path).value();
  EXPECT_EQ(std::count(content.begin(), content.end(), '\n'), 1);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace manta::testing

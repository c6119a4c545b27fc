// The last reference to a process's only channel goes on one of gRPC's own threads, behind a call's callback.
#include "common/rpc/callback_threads.h"

#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "gtest/gtest.h"
#include "manta/v1/actor.grpc.pb.h"

namespace manta::rpc {
namespace {

constexpr char kNobody[] = "127.0.0.1:1";  // refuses

TEST(CallbackThreads, OutliveTheLastChannel) {
  KeepCallbackThreads();
  for (int i = 0; i < 100; ++i) {
    struct Call {
      std::unique_ptr<v1::ActorService::Stub> stub;
      grpc::ClientContext context;
      v1::PingRequest request;
      v1::PingReply reply;
      absl::Notification let_go;
    };
    auto call = std::make_shared<Call>();
    std::weak_ptr<Call> weak = call;
    call->stub = v1::ActorService::NewStub(OpenChannel(kNobody, "token").value());
    absl::Notification told;
    call->stub->async()->Ping(&call->context, &call->request, &call->reply, [call, &told](const grpc::Status& status) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
      told.Notify();
      call->let_go.WaitForNotification();
    });
    ASSERT_TRUE(told.WaitForNotificationWithTimeout(absl::Seconds(10)));
    absl::Notification& let_go = call->let_go;
    call.reset();
    let_go.Notify();  // the callback's is the last
    for (int wait = 0; wait < 1000 && !weak.expired(); ++wait) absl::SleepFor(absl::Milliseconds(1));
    ASSERT_TRUE(weak.expired());
  }
  // Calls still come back.
  EventLoop loop;
  const auto stub = v1::ActorService::NewStub(OpenChannel(kNobody, "token").value());
  const auto reply = RunToCompletion(
      loop, Call(loop, stub->async(), &AsyncOf<v1::ActorService>::Ping, {}, {.deadline = absl::Seconds(10)}));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace manta::rpc

// In steady state neither end of a session allocates for a call: counted by an operator new of this program's own.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "common/call/core/call_table.h"
#include "common/call/core/client_session.h"
#include "common/call/core/lanes.h"
#include "gtest/gtest.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Not inlined: the compiler would pair them with the library's own.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace manta::call {
namespace {

// A link that hands the session's own message over, as gRPC's does once it is serialised.
struct Up final : CallBatchSink {
  void Write(const v1::CallBatch& batch) override {
    message = &batch;
    bytes.clear();
    batch.AppendToString(&bytes);
  }
  const v1::CallBatch* message = nullptr;
  std::string bytes;
};
struct Down final : ReplyBatchSink {
  void Write(const v1::ReplyBatch& batch) override {
    bytes.clear();
    batch.AppendToString(&bytes);
    written = true;
  }
  void Close(const absl::Status&) override {}
  std::string bytes;
  bool written = false;
};

// The caller's own, reused: one call under way at a time each.
struct Sink final : CallSink {
  void OnDone(const absl::Status& status, v1::Reply& reply) override {
    ok += status.ok() && reply.payload() == "hello back";
    idle = true;
  }
  int64_t ok = 0;
  bool idle = true;
};

class Pair {
 public:
  Pair() : table_(Table()) {
    lane_ = lanes_.Add("work", {.concurrency = 1, .capacity = 256});
    ClientSession::Options options{.actor_id = "a-0", .epoch = 1, .window = 256, .clock = SteadyNow};
    options.caller.set_id("caller");
    client_ = std::make_unique<ClientSession>(std::move(options));
    v1::SessionOpened opened;
    const auto open = table_.Open(client_->OpenBatch().open(), down_, &opened).value();
    session_ = open.session;
    server_link_ = open.link;
    session_->OnWriteDone(server_link_);
    client_link_ = client_->Attach(up_, opened);
    for (int i = 0; i < 64; ++i) sinks_.push_back(std::make_shared<Sink>());
  }

  // Every idle sink calls once; what was written travels there and back.
  void Round() {
    for (const auto& sink : sinks_) {
      if (!sink->idle) continue;
      sink->idle = false;
      const CallSpec spec{.method = 0, .payload = "hello", .deadline = absl::Seconds(10)};
      ASSERT_TRUE(client_->Start(spec, sink).ok());
    }
    while (!up_->bytes.empty()) {
      calls_.ParseFromString(up_->bytes);
      up_->bytes.clear();
      client_->OnWriteDone(client_link_);
      admitted_.clear();
      session_->OnBatch(server_link_, calls_, &admitted_);
      for (CallRef& ref : admitted_) ASSERT_TRUE(lanes_.Admit(lane_, ref).ok());
      Serve();
      while (down_->written) {
        down_->written = false;
        replies_.ParseFromString(down_->bytes);
        session_->OnWriteDone(server_link_);
        client_->OnReplies(client_link_, replies_);
      }
    }
  }
  int64_t done() const {
    int64_t sum = 0;
    for (const auto& sink : sinks_) sum += sink->ok;
    return sum;
  }

 private:
  static CallTable::Options Table() {
    CallTable::Options options{.actor_id = "a-0", .epoch = 1, .window = 256};
    v1::MethodInfo method;
    method.set_name("work");
    options.methods.push_back(method);
    return options;
  }
  void Serve() {
    CallRef ref;
    while (lanes_.ClaimAny(0) == lane_) {
      while (lanes_.Next(lane_, &ref)) {
        if (!ref.session->StartRunning(ref.call)) continue;
        reply_.assign("hello back");
        (void)ref.session->Finish(ref.call, absl::OkStatus(), &reply_);
      }
    }
    ref.session = nullptr;
    session_->Flush();
  }

  CallTable table_;
  LaneSet lanes_;
  int lane_ = 0;
  std::shared_ptr<Up> up_ = std::make_shared<Up>();
  std::shared_ptr<Down> down_ = std::make_shared<Down>();
  std::unique_ptr<ClientSession> client_;
  std::shared_ptr<ServerSession> session_;
  uint64_t client_link_ = 0, server_link_ = 0;
  std::vector<std::shared_ptr<Sink>> sinks_;
  v1::CallBatch calls_;
  v1::ReplyBatch replies_;
  std::vector<CallRef> admitted_;
  std::string reply_;
};

TEST(Allocations, NoneACallAfterTheFirstFew) {
  Pair pair;
  for (int i = 0; i < 200; ++i) pair.Round();  // slots, messages and rings have their sizes by then
  const int64_t done = pair.done();
  const int64_t before = allocations.load();
  for (int i = 0; i < 1000; ++i) pair.Round();
  const int64_t calls = pair.done() - done, made = allocations.load() - before;
  std::printf("%lld allocations in %lld calls\n", static_cast<long long>(made), static_cast<long long>(calls));
  EXPECT_EQ(calls, 64'000);
  EXPECT_LE(made, calls / 1000) << "an allocation a call is " << calls;
}

}  // namespace
}  // namespace manta::call

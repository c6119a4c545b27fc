#include "common/call/call_server.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/call/core/crew.h"
#include "common/call/core/outcome.h"
#include "common/call/core/segment_map.h"
#include "common/call/core/transfer_store.h"
#include "common/call/server_stream.h"
#include "common/call/transfer_call.h"
#include "common/call/unary_calls.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_builder.h"

namespace manta::call {

class CallServer::Impl : public ServerStream::Host {
 public:
  using Service = v1::CallService::WithAsyncMethod_Open<v1::CallService::WithAsyncMethod_Invoke<
      v1::CallService::WithRawMethod_Transfer<v1::CallService::WithAsyncMethod_QueryCalls<v1::CallService::Service>>>>;

  explicit Impl(Options options) : options_(std::move(options)) { lanes_.Add("work", {}); }

  void Start() {
    MANTA_CHECK(queue_ != nullptr) << "Configure was not used";
    CallTable::Options table{.actor_id = options_.actor_id, .epoch = options_.epoch, .host_id = HostId()};
    table.window = options_.window;
    table.fencing = options_.fencing;
    for (const Method& method : methods_) table.methods.push_back(method.info);
    table_ = std::make_unique<CallTable>(std::move(table));
    crew_ = std::make_unique<Crew>(
        lanes_, [this] { return Poll(); }, [this](const CallRef& ref) { Run(ref); });
    Listen();
    InvokeCall::Accept(this, service_, queue_.get());
    QueryCall::Accept(this, service_, queue_.get());
    TransferCall::Accept(&transfers_, service_, queue_.get());
    Tick();
    crew_->Start();
  }

  bool Poll() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_->Next(&tag, &ok)) return false;
    static_cast<Tag*>(tag)->Run(ok);
    return true;
  }

  void Tick() {
    alarm_.Set(queue_.get(), absl::ToChronoTime(absl::Now() + absl::Seconds(1)), OnceTag::Make([this](bool ok) {
                 if (!ok) return;
                 table_->Tick();
                 transfers_.Tick();
                 Tick();
               }));
  }

  // ---- ServerStream::Host: on the poller's thread
  void Listen() override {
    if (!stopping_) std::make_shared<ServerStream>(this)->Accept(service_, queue_.get());
  }
  CallTable& table() override { return *table_; }
  void Admit(std::vector<CallRef>& calls) override {
    for (CallRef& ref : calls) {
      const Method& method = methods_[ServerSession::context(ref.call)->call().method()];
      if (method.lane == LaneSet::kControl) {
        Run(ref);
        continue;
      }
      const absl::Status fits = lanes_.Admit(method.lane, ref);
      if (!fits.ok() && ref.session->Finish(ref.call, fits, nullptr)) crew_->Replied(ref.session);
    }
  }

  // On any of the crew's threads.
  void Run(const CallRef& ref) {
    CallContext* context = ServerSession::context(ref.call);
    if (const absl::Status found = FindArgument(*context); !found.ok()) {
      if (ref.session->Finish(ref.call, NotStarted(found), nullptr)) crew_->Replied(ref.session);
      return;
    }
    if (!ref.session->StartRunning(ref.call)) return;
    thread_local std::string reply;  // its memory goes from call to call
    reply.clear();
    const absl::Status status = methods_[context->call().method()].handler(*context, &reply);
    if (ref.session->Finish(ref.call, status, &reply)) crew_->Replied(ref.session);
  }

  // Where an argument's bytes are that are not in the call's message.
  absl::Status FindArgument(CallContext& context) {
    if (context.call().has_shm()) {
      MANTA_ASSIGN_OR_RETURN(SegmentMap::View view, segments_.Open(context.call().shm()));
      context.set_argument(view.bytes, std::move(view.holder));
    } else if (context.call().transfer() != 0) {
      MANTA_ASSIGN_OR_RETURN(TransferStore::Taken taken,
                             transfers_.Take(context.caller().id(), context.call().transfer()));
      context.set_argument(taken.bytes, std::move(taken.holder));
    }
    return absl::OkStatus();
  }

  bool Idle() const {
    const LaneSet::Counts counts = lanes_.counts();
    return counts.queued == 0 && counts.running == 0;
  }
  void WaitUntilIdle(absl::Time until) {
    while (!Idle() && absl::Now() < until) absl::SleepFor(absl::Milliseconds(2));
  }

  void Stop(absl::Duration grace, const std::string& why) {
    const absl::Time until = absl::Now() + grace;
    table_->Drain(why);
    WaitUntilIdle(until);
    // What is left hears of its cancellation and has a moment to answer it.
    table_->CloseAll(absl::UnavailableError(options_.actor_id + " stops: " + why));
    stopping_ = true;
    WaitUntilIdle(std::max(until, absl::Now() + absl::Milliseconds(100)));
  }
  void Join() {
    if (queue_ == nullptr || joined_) return;
    joined_ = true;
    alarm_.Cancel();
    queue_->Shutdown();
    if (crew_ != nullptr) crew_->Join();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) static_cast<Tag*>(tag)->Run(false);
  }
  ~Impl() override { Join(); }

  struct Method {
    v1::MethodInfo info;
    int lane = 0;
    Handler handler;
  };
  const Options options_;
  Service service_;
  LaneSet lanes_;
  std::vector<Method> methods_;
  SegmentMap segments_;
  TransferStore transfers_{TransferStore::Options{}};
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<CallTable> table_;
  std::unique_ptr<Crew> crew_;
  grpc::Alarm alarm_;
  std::atomic<bool> stopping_{false};
  bool joined_ = false;
};

CallServer::CallServer(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
CallServer::~CallServer() = default;

void CallServer::AddLane(const std::string& name, LaneOptions options) {
  impl_->lanes_.Set(name, options);
}

void CallServer::AddMethod(const std::string& name, MethodOptions options, Handler handler) {
  Impl::Method method;
  method.info.set_name(name);
  method.info.set_lane(options.lane);
  method.info.set_idempotent(options.idempotent);
  method.info.set_streaming(options.streaming);
  method.lane = impl_->lanes_.Add(options.lane, {});
  method.handler = std::move(handler);
  impl_->methods_.push_back(std::move(method));
}

std::function<void(grpc::ServerBuilder&)> CallServer::Configure() {
  return [impl = impl_.get()](grpc::ServerBuilder& builder) { impl->queue_ = builder.AddCompletionQueue(); };
}

grpc::Service* CallServer::service() {
  return &impl_->service_;
}

void CallServer::Start() {
  impl_->Start();
}

void CallServer::Stop(absl::Duration grace, const std::string& why) {
  impl_->Stop(grace, why);
}

void CallServer::Join() {
  impl_->Join();
}

std::vector<v1::MethodInfo> CallServer::methods() const {
  std::vector<v1::MethodInfo> methods;
  for (const Impl::Method& method : impl_->methods_) methods.push_back(method.info);
  return methods;
}

void CallServer::RaiseFence(const std::string& group, uint64_t min_epoch) {
  impl_->table_->RaiseFence(group, min_epoch);
}

CallServer::Stats CallServer::stats() const {
  const LaneSet::Counts lanes = impl_->lanes_.counts();
  Stats stats{.queued = lanes.queued, .running = lanes.running, .completed = lanes.completed, .refused = lanes.refused};
  if (impl_->table_ != nullptr) stats.sessions = impl_->table_->counts().sessions;
  if (impl_->crew_ != nullptr) stats.threads = impl_->crew_->num_threads();
  return stats;
}

}  // namespace manta::call

#include "common/call/peer.h"

#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/call/client_stream.h"
#include "common/call/core/outcome.h"
#include "common/call/transfer_sender.h"
#include "common/rpc/channel.h"
#include "grpcpp/alarm.h"
#include "spdlog/spdlog.h"

namespace manta::call {
namespace {

constexpr size_t kLarge = size_t{1} << 20;
constexpr char kPoolIsFull[] = "this process's shared memory is full";
constexpr absl::Duration kRetry = absl::Milliseconds(20);

// What an actor said of the session: trying again changes nothing.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInvalidArgument:
      return true;
    default:  // a stopping actor says UNAVAILABLE with an outcome; the transport's own has none but the guessed one
      return absl::StrContains(status.message(), " stops: ");
  }
}

bool ProcessIsGone(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable && absl::StrContains(status.message(), "Connection refused");
}

class SharedArgument final : public LargeArgument {
 public:
  SharedArgument(std::shared_ptr<SegmentPool> pool, const SegmentPool::Region& region)
      : pool_(std::move(pool)), region_(region) {}
  void Release(bool safe) override {
    if (safe) {
      pool_->Free(region_);
    } else {
      pool_->Abandon(region_);
    }
  }

 private:
  const std::shared_ptr<SegmentPool> pool_;
  const SegmentPool::Region region_;
};

class BlockingSink final : public CallSink {
 public:
  void OnDone(const absl::Status& s, v1::Reply& reply) override {
    status = s;
    payload.swap(*reply.mutable_payload());
    waiter.Notify();
  }
  ClientPoller::Waiter waiter;
  absl::Status status;
  std::string payload;
};

class PeerImpl final : public OwnedPeer, public std::enable_shared_from_this<PeerImpl> {
 public:
  PeerImpl(ClientShared* client, std::string address, const std::string& actor_id, uint64_t epoch)
      : client_(client), address_(std::move(address)) {
    ClientSession::Options options{.caller = client->options.caller, .actor_id = actor_id, .epoch = epoch};
    options.host_id = HostId();
    options.window = client->options.window;
    session_ = std::make_shared<ClientSession>(std::move(options));
  }

  absl::Status Open() override {
    MANTA_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                           rpc::OpenChannel(address_, client_->options.token));
    stub_ = v1::CallService::NewStub(channel);
    broken_since_ = absl::Now();
    NewStream();
    return absl::OkStatus();
  }

  void NewStream() {
    auto self = shared_from_this();
    auto stream = std::make_shared<ClientStream>(
        session_, [self] { self->OnOpened(); }, [self](const absl::Status& status) { self->OnEnded(status); });
    {
      std::lock_guard lock(mu_);
      stream_ = stream;
    }
    stream->Start(*stub_, client_->poller.queue());
  }

  void WhenOpen(absl::Duration timeout, absl::AnyInvocable<void(const absl::Status&)> then) override {
    absl::Status known;
    {
      std::lock_guard lock(mu_);
      if (!is_open_ && failure_.ok()) {
        waiting_.push_back({std::move(then), absl::Now() + timeout});
        return;
      }
      known = failure_;
    }
    then(known);
  }

  absl::Status WaitOpen(absl::Duration timeout) override {
    if (is_open_.load(std::memory_order_acquire)) return absl::OkStatus();
    ClientPoller::Waiter waiter;
    absl::Status result;
    WhenOpen(timeout, [&](const absl::Status& status) {
      result = status;
      waiter.Notify();
    });
    client_->poller.Wait(waiter);
    return result;
  }

  absl::StatusOr<uint64_t> Start(const CallSpec& spec, std::shared_ptr<CallSink> sink) override {
    return session_->Start(spec, std::move(sink));
  }

  absl::StatusOr<std::string> CallBlocking(std::string_view method, std::string_view payload,
                                           const CallOptions& options) override {
    MANTA_RETURN_IF_ERROR(WaitOpen(options.deadline));
    MANTA_ASSIGN_OR_RETURN(const uint32_t number, session_->FindMethod(method));
    if (session_->streaming(number)) {
      return NotStarted(absl::InvalidArgumentError(absl::StrCat(std::string(method), " streams its results")));
    }
    const absl::Time until = absl::Now() + options.deadline;
    CallSpec spec{.method = number, .payload = payload, .deadline = options.deadline, .key = options.key};
    if (payload.size() < kLarge) return StartAndWait(spec);
    if (SharesMemory()) {
      absl::StatusOr<std::string> reply = CallShared(spec);
      if (!IsUnreadable(reply.status())) return reply;
    }
    MANTA_ASSIGN_OR_RETURN(spec.transfer, SendInChunks(payload, until - absl::Now()));
    spec.payload = {};
    spec.deadline = until - absl::Now();
    return StartAndWait(spec);
  }

  bool open() const override { return is_open_.load(std::memory_order_acquire); }
  ClientSession& session() override { return *session_; }

  void Fail(const absl::Status& why) override {
    std::shared_ptr<ClientStream> stream;
    {
      std::lock_guard lock(mu_);
      if (!failure_.ok()) return;
      failure_ = NotStarted(why);
      is_open_ = false;
      stream = stream_;
    }
    session_->Fail(why);
    if (stream != nullptr) stream->Break();
    WakeAll();
  }

  bool failed() const override {
    std::lock_guard lock(mu_);
    return !failure_.ok();
  }
  bool busy() const override {
    if (session_->in_flight() > 0) return true;
    std::lock_guard lock(mu_);
    return !waiting_.empty() || (stream_ != nullptr && !is_open_ && failure_.ok());
  }

  void Tick() override {
    const absl::Status silent = session_->Tick();
    std::shared_ptr<ClientStream> stream;
    std::vector<absl::AnyInvocable<void(const absl::Status&)>> late;
    {
      std::lock_guard lock(mu_);
      stream = stream_;
      const absl::Time now = absl::Now();
      for (Waiting& waiting : waiting_) {
        if (now >= waiting.until) late.push_back(std::move(waiting.then));
      }
      std::erase_if(waiting_, [&](const Waiting& waiting) { return now >= waiting.until; });
    }
    for (auto& then : late) {
      then(NotStarted(absl::DeadlineExceededError(
          absl::StrCat("no connection to ", session_->options().actor_id, " at ", address_, " in time"))));
    }
    if (!silent.ok() && stream != nullptr) stream->Break();
  }

  void SayGoodbye() override {
    std::shared_ptr<ClientStream> stream;
    {
      std::lock_guard lock(mu_);
      stream = stream_;
      leaving_ = true;
    }
    if (stream != nullptr) stream->SayGoodbye();
  }
  bool gone() const override {
    std::lock_guard lock(mu_);
    return stream_ == nullptr;
  }

 private:
  struct Waiting {
    absl::AnyInvocable<void(const absl::Status&)> then;
    absl::Time until;
  };

  absl::StatusOr<std::string> StartAndWait(const CallSpec& spec) {
    BlockingSink sink;
    const std::shared_ptr<CallSink> unowned(std::shared_ptr<void>(), &sink);
    if (absl::Status started = session_->Start(spec, unowned).status(); !started.ok()) {
      if (spec.argument != nullptr) spec.argument->Release(/*safe=*/true);
      return started;
    }
    client_->poller.Wait(sink.waiter);
    if (!sink.status.ok()) return sink.status;
    return std::move(sink.payload);
  }

  bool SharesMemory() const {
    const std::string& theirs = session_->opened().host_id();
    return client_->options.shared_memory && !no_shared_memory_ && !theirs.empty() && theirs == HostId();
  }
  // Nothing has run: the argument can go another way.
  static bool IsUnreadable(const absl::Status& status) {
    return OutcomeOf(status) == v1::CALL_OUTCOME_NOT_STARTED &&
           ((status.code() == absl::StatusCode::kFailedPrecondition && absl::StartsWith(status.message(), "cannot ")) ||
            absl::StartsWith(status.message(), kPoolIsFull));
  }

  absl::StatusOr<std::string> CallShared(CallSpec spec) {
    const auto region = client_->segments->Allocate(spec.payload.size());
    if (!region.ok()) return NotStarted(Annotate(region.status(), kPoolIsFull));
    CopyLarge(region->data, reinterpret_cast<const std::byte*>(spec.payload.data()), spec.payload.size());
    const v1::ShmRef ref = client_->segments->Ref(*region);
    spec.payload = {};
    spec.shm = &ref;
    spec.argument = std::make_shared<SharedArgument>(client_->segments, *region);
    absl::StatusOr<std::string> reply = StartAndWait(spec);
    if (reply.status().code() == absl::StatusCode::kFailedPrecondition && IsUnreadable(reply.status()) &&
        !no_shared_memory_.exchange(true)) {
      spdlog::warn("{} cannot read this process's shared memory ({}): arguments go in chunks",
                   session_->options().actor_id, std::string(reply.status().message()));
    }
    return reply;
  }

  // Returns the number by which the call names what was sent.
  absl::StatusOr<uint64_t> SendInChunks(std::string_view payload, absl::Duration deadline) {
    std::shared_ptr<grpc::Channel> channel;
    {
      std::lock_guard lock(mu_);
      if (transfer_channel_ == nullptr) {
        // A connection of its own, so that calls do not wait behind it.
        MANTA_ASSIGN_OR_RETURN(transfer_channel_, rpc::OpenChannel(address_, client_->options.token));
      }
      channel = transfer_channel_;
    }
    const uint64_t number = client_->next_transfer.fetch_add(1);
    absl::Status sent;
    ClientPoller::Waiter waiter;
    std::make_shared<TransferSender>(channel, client_->poller.queue(), client_->options.caller.id(), number,
                                     std::as_bytes(std::span(payload.data(), payload.size())), deadline,
                                     [&](absl::Status status) {
                                       sent = std::move(status);
                                       waiter.Notify();
                                     })
        ->Start();
    client_->poller.Wait(waiter);
    if (!sent.ok()) return NotStarted(Annotate(sent, "the call's argument was not sent"));
    return number;
  }

  void OnOpened() {
    is_open_ = true;
    broken_since_ = absl::InfiniteFuture();
    WakeAll();
  }

  // On the poller's thread.
  void OnEnded(const absl::Status& status) {
    bool over = false;
    {
      std::lock_guard lock(mu_);
      stream_ = nullptr;
      over = leaving_ || !failure_.ok();
    }
    if (over) return;
    if (broken_since_ == absl::InfiniteFuture()) broken_since_ = absl::Now();
    const std::string& actor = session_->options().actor_id;
    if (IsFinal(status)) {
      Fail(Annotate(status, absl::StrCat(actor, " at ", address_)));
    } else if (ProcessIsGone(status)) {
      v1::ErrorInfo info = GetErrorInfo(status);
      info.set_origin(v1::ORIGIN_WORKER_DIED);
      info.set_actor(actor);
      Fail(WithErrorInfo(absl::UnavailableError(absl::StrCat(actor, " at ", address_, " is gone: its port is closed")),
                         info));
    } else if (absl::Now() - broken_since_ > client_->options.reconnect_for) {
      Fail(Annotate(status, absl::StrCat(actor, " at ", address_, " was not reached for ",
                                         absl::FormatDuration(client_->options.reconnect_for))));
    } else if (++attempts_in_a_row_ == 1) {
      NewStream();
    } else {
      auto self = shared_from_this();
      alarm_ = std::make_unique<grpc::Alarm>();
      alarm_->Set(client_->poller.queue(), absl::ToChronoTime(absl::Now() + kRetry), OnceTag::Make([self](bool ok) {
                    if (ok && !self->failed()) self->NewStream();
                  }));
    }
  }

  void WakeAll() {
    if (is_open_) attempts_in_a_row_ = 0;
    std::vector<Waiting> waiting;
    absl::Status status;
    {
      std::lock_guard lock(mu_);
      waiting.swap(waiting_);
      status = failure_;
    }
    for (Waiting& one : waiting) one.then(status);
  }

  ClientShared* const client_;
  const std::string address_;
  std::shared_ptr<ClientSession> session_;
  std::unique_ptr<v1::CallService::Stub> stub_;
  std::atomic<bool> is_open_{false}, no_shared_memory_{false};
  // The poller's:
  absl::Time broken_since_ = absl::InfiniteFuture();
  std::atomic<int> attempts_in_a_row_{0};
  std::unique_ptr<grpc::Alarm> alarm_;
  mutable std::mutex mu_;
  std::shared_ptr<ClientStream> stream_;
  std::vector<Waiting> waiting_;
  absl::Status failure_;
  std::shared_ptr<grpc::Channel> transfer_channel_;
  bool leaving_ = false;
};

}  // namespace

std::shared_ptr<OwnedPeer> MakePeer(ClientShared* client, std::string address, const std::string& actor_id,
                                    uint64_t epoch) {
  return std::make_shared<PeerImpl>(client, std::move(address), actor_id, epoch);
}

}  // namespace manta::call

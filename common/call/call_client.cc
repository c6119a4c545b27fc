#include "common/call/call_client.h"

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/call/client_poller.h"
#include "common/call/client_stream.h"
#include "common/call/core/outcome.h"
#include "common/call/host_id.h"
#include "common/rpc/channel.h"

namespace manta::call {
namespace {

constexpr absl::Duration kRetry = absl::Milliseconds(20);
constexpr absl::Duration kGoodbye = absl::Milliseconds(200);

std::string RandomCallerId() {
  std::random_device device;
  std::string id;
  while (id.size() < 16) id.push_back(static_cast<char>(device()));
  return id;
}

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

}  // namespace

class PeerImpl;

class CallClient::Impl {
 public:
  explicit Impl(Options o) : options(std::move(o)), poller([this] { Tick(); }, [this] { return in_flight() > 0; }) {}
  ~Impl();
  void Tick();
  int64_t in_flight() const { return calls.load(std::memory_order_relaxed); }

  const Options options;
  std::atomic<int64_t> calls{0};  // peers that have calls or are being connected to; an estimate
  std::mutex mu;
  std::map<std::tuple<std::string, std::string, uint64_t>, std::shared_ptr<PeerImpl>> peers;
  ClientPoller poller;
};

class PeerImpl final : public Peer, public std::enable_shared_from_this<PeerImpl> {
 public:
  PeerImpl(CallClient::Impl* client, std::string address, const std::string& actor_id, uint64_t epoch)
      : client_(client), address_(std::move(address)) {
    ClientSession::Options options{.caller = client->options.caller, .actor_id = actor_id, .epoch = epoch};
    options.host_id = SharedMemoryHostId();
    options.window = client->options.window;
    session_ = std::make_shared<ClientSession>(std::move(options));
  }

  absl::Status Open() {
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
    BlockingSink sink;
    const CallSpec spec{.method = number, .payload = payload, .deadline = options.deadline, .key = options.key};
    const std::shared_ptr<CallSink> unowned(std::shared_ptr<void>(), &sink);
    MANTA_RETURN_IF_ERROR(session_->Start(spec, unowned).status());
    client_->poller.Wait(sink.waiter);
    if (!sink.status.ok()) return sink.status;
    return std::move(sink.payload);
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

  bool failed() const {
    std::lock_guard lock(mu_);
    return !failure_.ok();
  }
  bool busy() const {
    if (session_->in_flight() > 0) return true;
    std::lock_guard lock(mu_);
    return !waiting_.empty() || (stream_ != nullptr && !is_open_ && failure_.ok());
  }

  void Tick() {
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

  void SayGoodbye() {
    std::shared_ptr<ClientStream> stream;
    {
      std::lock_guard lock(mu_);
      stream = stream_;
      leaving_ = true;
    }
    if (stream != nullptr) stream->SayGoodbye();
  }
  bool gone() const {
    std::lock_guard lock(mu_);
    return stream_ == nullptr;
  }

 private:
  struct Waiting {
    absl::AnyInvocable<void(const absl::Status&)> then;
    absl::Time until;
  };

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

  CallClient::Impl* const client_;
  const std::string address_;
  std::shared_ptr<ClientSession> session_;
  std::unique_ptr<v1::CallService::Stub> stub_;
  std::atomic<bool> is_open_{false};
  // The poller's:
  absl::Time broken_since_ = absl::InfiniteFuture();
  std::atomic<int> attempts_in_a_row_{0};
  std::unique_ptr<grpc::Alarm> alarm_;
  mutable std::mutex mu_;
  std::shared_ptr<ClientStream> stream_;
  std::vector<Waiting> waiting_;
  absl::Status failure_;
  bool leaving_ = false;
};

void CallClient::Impl::Tick() {
  std::vector<std::shared_ptr<PeerImpl>> all;
  {
    std::lock_guard lock(mu);
    for (auto it = peers.begin(); it != peers.end();) {
      const bool failed = it->second->failed();
      if (!failed) all.push_back(it->second);
      it = failed ? peers.erase(it) : std::next(it);
    }
  }
  int64_t busy = 0;
  for (const auto& peer : all) {
    peer->Tick();
    if (peer->busy()) ++busy;
  }
  calls.store(busy, std::memory_order_relaxed);
}

CallClient::Impl::~Impl() {
  std::vector<std::shared_ptr<PeerImpl>> all;
  {
    std::lock_guard lock(mu);
    for (const auto& [name, peer] : peers) all.push_back(peer);
    peers.clear();
  }
  for (const auto& peer : all) peer->SayGoodbye();
  const absl::Time until = absl::Now() + kGoodbye;
  for (const auto& peer : all) {
    while (!peer->gone() && absl::Now() < until) absl::SleepFor(absl::Milliseconds(1));
    peer->Fail(absl::CancelledError("the caller's client was closed"));
  }
  poller.Shutdown();
}

CallClient::CallClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CallClient::~CallClient() = default;

absl::StatusOr<std::unique_ptr<CallClient>> CallClient::Create(Options options) {
  if (options.token.empty()) return absl::FailedPreconditionError("a caller needs the job's token");
  if (options.caller.id().empty()) options.caller.set_id(RandomCallerId());
  return std::unique_ptr<CallClient>(new CallClient(std::make_unique<Impl>(std::move(options))));
}

absl::StatusOr<std::shared_ptr<Peer>> CallClient::Connect(const std::string& address, const std::string& actor_id,
                                                          uint64_t epoch) {
  std::lock_guard lock(impl_->mu);
  std::shared_ptr<PeerImpl>& peer = impl_->peers[{address, actor_id, epoch}];
  if (peer != nullptr && !peer->failed()) return std::shared_ptr<Peer>(peer);
  peer = std::make_shared<PeerImpl>(impl_.get(), address, actor_id, epoch);
  impl_->calls.fetch_add(1);
  if (const absl::Status open = peer->Open(); !open.ok()) {
    impl_->peers.erase({address, actor_id, epoch});
    return open;
  }
  return std::shared_ptr<Peer>(peer);
}

void CallClient::RunUntil(const std::function<void(std::function<void()> notify)>& start) {
  ClientPoller::Waiter waiter;
  start([&waiter] { waiter.Notify(); });
  impl_->poller.Wait(waiter);
}

}  // namespace manta::call

#include "common/actor/client.h"

#include <climits>
#include <deque>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/actor/cluster_resolver.h"
#include "common/actor/group_handle.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"
#include "google/protobuf/message_lite.h"

namespace manta::actor {
namespace {

constexpr uint32_t kItemCredit = 16;
constexpr absl::Duration kExplainWithin = absl::Milliseconds(150);

// Whether an idempotent method's call may succeed if it is sent again, to where its actor is by then.
bool MayRetry(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return true;
    case absl::StatusCode::kFailedPrecondition:  // another epoch is there
      return call::OutcomeOf(status) == v1::CALL_OUTCOME_NOT_STARTED;
    default:
      return false;
  }
}

}  // namespace

namespace internal {

absl::Status ParseReply(const std::string& bytes, google::protobuf::MessageLite* reply) {
  if (bytes.size() <= INT_MAX && reply->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::OkStatus();
  return call::Failed(
      absl::InternalError(absl::StrCat("the reply (", bytes.size(), " bytes) is no ", reply->GetTypeName())));
}

std::string Serialize(const google::protobuf::MessageLite& request) {
  return request.SerializeAsString();
}

class HandleState : public std::enable_shared_from_this<HandleState> {
 public:
  // By name where `address` is empty.
  HandleState(call::CallClient* calls, std::shared_ptr<Resolver> resolver, std::string name, int rank,
              ActorAddress address)
      : calls(calls),
        resolver(std::move(resolver)),
        name(std::move(name)),
        rank(rank),
        by_name_(this->resolver != nullptr && address.address.empty()),
        address_(std::move(address)) {}

  std::shared_ptr<call::Peer> OpenPeer() {
    std::lock_guard lock(mu_);
    return peer_ != nullptr && peer_->open() ? peer_ : nullptr;
  }
  // A peer whose session is open.
  void WithPeer(absl::Duration timeout, absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<call::Peer>>)> then) {
    std::shared_ptr<call::Peer> peer;
    ActorAddress lost;
    {
      std::lock_guard lock(mu_);
      if (peer_ != nullptr && peer_->session().failure().ok()) {
        peer = peer_;
      } else if (std::exchange(peer_, nullptr) != nullptr) {
        lost = address_;
      }
    }
    if (peer != nullptr) {
      Open(peer, timeout, std::move(then));
    } else if (!by_name_) {
      Connect(address_, timeout, std::move(then));
    } else {
      if (!lost.actor_id.empty()) resolver->Lost(name, lost);
      auto self = shared_from_this();
      resolver->Resolve(name, timeout, [self, timeout, then = std::move(then)](auto ranks) mutable {
        if (!ranks.ok()) return then(call::NotStarted(ranks.status()));
        if (self->rank >= static_cast<int>(ranks->size())) {
          return then(call::NotStarted(absl::NotFoundError(
              absl::StrCat(self->name, " has ", ranks->size(), " ranks; there is no rank ", self->rank))));
        }
        self->Connect((*ranks)[self->rank], timeout, std::move(then));
      });
    }
  }
  ActorAddress address() {
    std::lock_guard lock(mu_);
    return address_;
  }

  call::CallClient* const calls;
  const std::shared_ptr<Resolver> resolver;  // may be null
  const std::string name;
  const int rank;

 private:
  using Then = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<call::Peer>>)>;
  void Connect(const ActorAddress& address, absl::Duration timeout, Then then) {
    if (address.address.empty()) {
      return then(call::NotStarted(absl::FailedPreconditionError(
          absl::StrCat(name, ": this client has no resolver, it knows actors by address only"))));
    }
    auto peer = calls->Connect(address.address, address.actor_id, address.epoch);
    if (!peer.ok()) return then(call::NotStarted(peer.status()));
    {
      std::lock_guard lock(mu_);
      peer_ = *peer;
      address_ = address;
    }
    Open(*peer, timeout, std::move(then));
  }
  static void Open(std::shared_ptr<call::Peer> peer, absl::Duration timeout, Then then) {
    peer->WhenOpen(timeout, [peer, then = std::move(then)](const absl::Status& status) mutable {
      if (!status.ok()) return then(status);
      then(peer);
    });
  }

  const bool by_name_;
  std::mutex mu_;
  ActorAddress address_;
  std::shared_ptr<call::Peer> peer_;
};

}  // namespace internal

namespace {

// A call with what comes before and after it: finding its actor, sending it again, explaining its end.
class AsyncCall final : public call::CallSink, public CallCanceller, public std::enable_shared_from_this<AsyncCall> {
 public:
  AsyncCall(std::shared_ptr<internal::HandleState> handle, std::string method, std::string argument,
            CallOptions options, ActorHandle::Done done)
      : handle_(std::move(handle)),
        method_(std::move(method)),
        argument_(std::move(argument)),
        options_(std::move(options)),
        until_(absl::Now() + options_.deadline),
        done_(std::move(done)) {}

  void Begin() {
    auto self = shared_from_this();
    handle_->WithPeer(until_ - absl::Now(), [self](auto peer) { self->Send(std::move(peer)); });
  }
  void Cancel() override {
    std::shared_ptr<call::Peer> peer;
    uint64_t seq = 0;
    {
      std::lock_guard lock(mu_);
      cancelled_ = true;
      peer = peer_;
      seq = seq_;
    }
    if (peer != nullptr && seq != 0) peer->session().Cancel(seq);
  }

  void OnDone(const absl::Status& status, v1::Reply& reply) override {
    if (status.ok()) return Finish(std::move(*reply.mutable_payload()));
    Failed(status);
  }

 private:
  void Send(absl::StatusOr<std::shared_ptr<call::Peer>> peer) {
    if (!peer.ok()) return Failed(peer.status());
    const absl::StatusOr<uint32_t> method = (*peer)->session().FindMethod(method_);
    if (!method.ok()) return Finish(method.status());
    idempotent_ = (*peer)->session().idempotent(*method);
    {
      std::lock_guard lock(mu_);
      if (cancelled_) return Finish(call::NotStarted(absl::CancelledError("the caller cancelled the call")));
      peer_ = *peer;
    }
    const call::CallSpec spec{
        .method = *method, .payload = argument_, .deadline = until_ - absl::Now(), .key = options_.key};
    const auto seq = (*peer)->Start(spec, shared_from_this());
    if (!seq.ok()) return Failed(seq.status());
    bool cancel = false;
    {
      std::lock_guard lock(mu_);
      seq_ = *seq;
      cancel = cancelled_;
    }
    if (cancel) (*peer)->session().Cancel(*seq);
  }
  void Failed(const absl::Status& status) {
    if (idempotent_ && MayRetry(status) && retries_ < options_.max_retries && absl::Now() < until_) {
      ++retries_;
      Begin();
      return;
    }
    if (handle_->resolver == nullptr || status.code() != absl::StatusCode::kUnavailable) return Finish(status);
    auto self = shared_from_this();
    handle_->resolver->Explain(handle_->address(), status, kExplainWithin,
                               [self](const absl::Status& explained) { self->Finish(explained); });
  }
  void Finish(absl::StatusOr<std::string> result) {
    auto done = std::move(done_);
    done(std::move(result));
  }

  const std::shared_ptr<internal::HandleState> handle_;
  const std::string method_, argument_;
  const CallOptions options_;
  const absl::Time until_;
  ActorHandle::Done done_;
  bool idempotent_ = false;
  int retries_ = 0;
  std::mutex mu_;
  bool cancelled_ = false;
  std::shared_ptr<call::Peer> peer_;
  uint64_t seq_ = 0;
};

absl::Status ExplainBlocking(internal::HandleState& handle, const absl::Status& status) {
  if (handle.resolver == nullptr || status.code() != absl::StatusCode::kUnavailable) return status;
  absl::Status explained;
  handle.calls->RunUntil([&](std::function<void()> notify) {
    handle.resolver->Explain(handle.address(), status, kExplainWithin, [&explained, notify](absl::Status result) {
      explained = std::move(result);
      notify();
    });
  });
  return explained;
}

class BlockingStream final : public ByteStream {
 public:
  BlockingStream(std::shared_ptr<internal::HandleState> handle, std::string method, std::string argument,
                 CallOptions options)
      : handle_(std::move(handle)), sink_(std::make_shared<Sink>()) {
    const absl::Time until = absl::Now() + options.deadline;
    absl::StatusOr<std::shared_ptr<call::Peer>> peer = absl::UnavailableError("");
    handle_->calls->RunUntil([&](std::function<void()> notify) {
      handle_->WithPeer(options.deadline, [&peer, notify](auto result) {
        peer = std::move(result);
        notify();
      });
    });
    absl::StatusOr<uint32_t> number = peer.ok() ? (*peer)->session().FindMethod(method) : peer.status();
    if (number.ok() && !(*peer)->session().streaming(*number)) {
      number = call::NotStarted(absl::InvalidArgumentError(absl::StrCat(method, " does not stream its results")));
    }
    absl::StatusOr<uint64_t> seq = absl::UnknownError("");
    if (!number.ok()) {
      seq = number.status();
    } else {
      seq = (*peer)->Start({.method = *number,
                            .payload = argument,
                            .deadline = until - absl::Now(),
                            .item_credit = kItemCredit,
                            .key = options.key},
                           sink_);
    }
    if (!seq.ok()) {
      sink_->ended = true;
      sink_->status = seq.status();
      return;
    }
    peer_ = *peer;
    seq_ = *seq;
  }
  ~BlockingStream() override {
    if (peer_ != nullptr) peer_->session().Cancel(seq_);
  }

  absl::StatusOr<std::optional<std::string>> Next() override {
    while (true) {
      {
        std::lock_guard lock(sink_->mu);
        if (!sink_->items.empty()) {
          std::string item = std::move(sink_->items.front());
          sink_->items.pop_front();
          if (++taken_ == kItemCredit / 2) {
            taken_ = 0;
            if (!sink_->ended) peer_->session().GiveCredit(seq_, kItemCredit / 2);
          }
          return std::optional<std::string>(std::move(item));
        }
        if (sink_->ended && sink_->status.ok()) return std::optional<std::string>();
        if (sink_->ended) break;
      }
      handle_->calls->RunUntil([&](std::function<void()> notify) {
        std::lock_guard lock(sink_->mu);
        if (!sink_->items.empty() || sink_->ended) return notify();
        sink_->notify = std::move(notify);
      });
    }
    return ExplainBlocking(*handle_, sink_->status);  // it has ended: nothing changes it any more
  }

 private:
  struct Sink final : call::CallSink {
    void OnItem(v1::Reply& reply) override {
      std::lock_guard lock(mu);
      items.push_back(std::move(*reply.mutable_payload()));
      Wake();
    }
    void OnDone(const absl::Status& s, v1::Reply&) override {
      std::lock_guard lock(mu);
      ended = true;
      status = s;
      Wake();
    }
    void Wake() {
      if (auto wake = std::exchange(notify, nullptr)) wake();
    }
    std::mutex mu;
    std::deque<std::string> items;
    bool ended = false;
    absl::Status status;
    std::function<void()> notify;
  };
  const std::shared_ptr<internal::HandleState> handle_;
  const std::shared_ptr<Sink> sink_;
  std::shared_ptr<call::Peer> peer_;
  uint64_t seq_ = 0;
  uint32_t taken_ = 0;
};

}  // namespace

std::shared_ptr<CallCanceller> ActorHandle::StartBytes(std::string method, std::string argument, CallOptions options,
                                                       Done done) const {
  auto call =
      std::make_shared<AsyncCall>(state_, std::move(method), std::move(argument), std::move(options), std::move(done));
  call->Begin();
  return call;
}

absl::StatusOr<std::string> ActorHandle::CallBytes(std::string_view method, std::string_view argument,
                                                   const CallOptions& options) const {
  if (const std::shared_ptr<call::Peer> peer = state_->OpenPeer(); peer != nullptr) {
    const absl::Time until = absl::Now() + options.deadline;
    absl::StatusOr<std::string> reply =
        peer->CallBlocking(method, argument, {.deadline = options.deadline, .key = options.key});
    const auto number = peer->session().FindMethod(method);
    const bool again = !reply.ok() && number.ok() && MayRetry(reply.status()) && absl::Now() < until &&
                       (peer->session().idempotent(*number) && options.max_retries > 0);
    if (reply.ok()) return reply;
    if (!again) return ExplainBlocking(*state_, reply.status());
  }
  absl::StatusOr<std::string> result = absl::UnknownError("");
  state_->calls->RunUntil([&](std::function<void()> notify) {
    StartBytes(std::string(method), std::string(argument), options,
               [&result, notify](absl::StatusOr<std::string> reply) {
                 result = std::move(reply);
                 notify();
               });
  });
  return result;
}

std::unique_ptr<ByteStream> ActorHandle::StreamBytes(std::string method, std::string argument,
                                                     CallOptions options) const {
  return std::make_unique<BlockingStream>(state_, std::move(method), std::move(argument), std::move(options));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(Options options) {
  std::unique_ptr<Client> client(new Client(std::move(options)));
  MANTA_ASSIGN_OR_RETURN(
      client->calls_, call::CallClient::Create({.token = client->options_.token, .caller = client->options_.caller}));
  if (client->options_.resolver == nullptr && client->options_.head) {
    client->cluster_ = std::make_shared<ClusterResolver>(
        client->calls_.get(), ClusterResolver::Options{.head = client->options_.head, .token = client->options_.token});
    client->options_.resolver = client->cluster_;
  }
  return client;
}

Client::~Client() {
  if (cluster_ != nullptr) cluster_->Shutdown();
}

ActorHandle Client::Actor(const std::string& name, int rank) {
  return ActorHandle(
      std::make_shared<internal::HandleState>(calls_.get(), options_.resolver, name, rank, ActorAddress{}));
}

ActorHandle Client::ActorAt(ActorAddress address) {
  const std::string name = address.actor_id;
  return ActorHandle(
      std::make_shared<internal::HandleState>(calls_.get(), options_.resolver, name, 0, std::move(address)));
}

absl::StatusOr<GroupHandle> Client::Group(const std::string& name, absl::Duration timeout) {
  MANTA_ASSIGN_OR_RETURN(const std::vector<ActorAddress> addresses, Resolve(name, timeout));
  std::vector<ActorHandle> ranks;
  for (size_t i = 0; i < addresses.size(); ++i) ranks.push_back(Actor(name, static_cast<int>(i)));
  return GroupHandle(std::move(ranks));
}

absl::StatusOr<std::vector<ActorAddress>> Client::Resolve(const std::string& name, absl::Duration timeout) {
  if (options_.resolver == nullptr)
    return absl::FailedPreconditionError("this client has no resolver: it knows actors by address only");
  absl::StatusOr<std::vector<ActorAddress>> result = absl::UnknownError("");
  calls_->RunUntil([&](std::function<void()> notify) {
    options_.resolver->Resolve(name, timeout, [&result, notify](auto ranks) {
      result = std::move(ranks);
      notify();
    });
  });
  return result;
}

}  // namespace manta::actor

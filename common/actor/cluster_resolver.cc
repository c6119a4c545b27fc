#include "common/actor/cluster_resolver.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/actor/name_stream.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"
#include "common/call/tag.h"
#include "common/rpc/channel.h"
#include "grpcpp/alarm.h"

namespace manta::actor {
namespace {

constexpr absl::Duration kHoldBack = absl::Milliseconds(500);
constexpr absl::Duration kRetryMin = absl::Milliseconds(50), kRetryMax = absl::Seconds(1);

// What the caller knows of its call, with what the head knows of the actor.
absl::Status Explained(const absl::Status& status, const absl::Status& died) {
  v1::ErrorInfo info = GetErrorInfo(died);
  info.set_outcome(call::OutcomeOf(status));
  return WithErrorInfo(absl::UnavailableError(died.message()), info);
}

}  // namespace

class ClusterResolver::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(call::CallClient* calls, Options options) : calls_(calls), options_(std::move(options)) {}

  using Then = absl::AnyInvocable<void()>;
  // Somebody who waits for news: `ready` says, with the lock held, whether it is there; `then` runs without, once.
  struct Waiting {
    std::function<bool(bool late)> ready;
    Then then;
    grpc::Alarm alarm;
    bool over = false;
  };
  struct Death {
    uint64_t epoch = 0;
    absl::Status why;
  };
  struct Lost {
    ActorAddress actor;
    absl::Time until;
  };
  // One name and what is known of it.
  struct Name {
    v1::ResolveRequest what;
    std::optional<v1::ResolveReply> now;
    std::map<std::string, Death> deaths;  // the last of each rank
    std::map<std::string, Lost> lost;     // by actor
    std::vector<std::shared_ptr<Waiting>> waiting;
    std::shared_ptr<NameStream> stream;  // null between two attempts
    std::shared_ptr<grpc::Alarm> retry;
    absl::Duration backoff = kRetryMin;
    uint64_t asked = 0;  // when it was last asked for
  };

  // ---- With the lock held
  std::shared_ptr<Name> Find(const std::string& key, const v1::ResolveRequest& what) {
    std::shared_ptr<Name>& name = names_[key];
    if (name == nullptr) {
      name = std::make_shared<Name>();
      name->what = what;
      const std::shared_ptr<Name> made = name;
      made->asked = ++clock_;
      DropOldest();
      Open(made);
      return made;
    }
    name->asked = ++clock_;
    return name;
  }
  void DropOldest() {
    if (names_.size() <= options_.max_names) return;
    auto oldest = names_.end();
    for (auto it = names_.begin(); it != names_.end(); ++it) {
      if (it->second->waiting.empty() && (oldest == names_.end() || it->second->asked < oldest->second->asked)) {
        oldest = it;
      }
    }
    if (oldest == names_.end()) return;
    End(*oldest->second);
    names_.erase(oldest);
  }
  static void End(Name& name) {
    if (name.stream != nullptr) name.stream->Cancel();
    if (name.retry != nullptr) name.retry->Cancel();
    name.stream = nullptr;
  }
  void Open(const std::shared_ptr<Name>& name) {
    const std::string address = options_.head ? options_.head() : "";
    if (address != address_ || channel_ == nullptr) {
      absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = rpc::OpenChannel(address, options_.token);
      address_ = address;
      channel_ = channel.ok() ? *std::move(channel) : nullptr;
      channel_error_ = channel.status();
    }
    if (channel_ == nullptr) return RetryLater(name);
    const std::weak_ptr<Impl> weak = weak_from_this();
    name->stream = std::make_shared<NameStream>(
        [weak, name](NameStream* stream, const v1::ResolveReply& reply) {
          if (const auto self = weak.lock()) self->OnReply(name, stream, reply);
        },
        [weak, name](NameStream* stream) {
          if (const auto self = weak.lock()) self->OnEnd(name, stream);
        });
    name->stream->Start(channel_, name->what, calls_->queue());
  }
  void RetryLater(const std::shared_ptr<Name>& name) {
    name->stream = nullptr;
    name->retry = std::make_shared<grpc::Alarm>();
    const absl::Time at = absl::Now() + name->backoff;
    name->backoff = std::min(2 * name->backoff, kRetryMax);
    const std::weak_ptr<Impl> weak = weak_from_this();
    name->retry->Set(calls_->queue(), absl::ToChronoTime(at),
                     call::OnceTag::Make([weak, name, keep = name->retry](bool ok) {
                       const auto self = weak.lock();
                       if (!ok || self == nullptr) return;
                       std::lock_guard lock(self->mu_);
                       if (!self->closed_ && name->retry == keep) self->Open(name);
                     }));
  }
  // All ranks' addresses, where each has one that may be given out.
  std::optional<std::vector<ActorAddress>> Addresses(const Name& name) const {
    if (!name.now.has_value() || name.now->ranks().empty()) return std::nullopt;
    std::vector<ActorAddress> addresses;
    for (const v1::ActorInfo& rank : name.now->ranks()) {
      if (rank.state() != v1::ACTOR_STATE_READY || rank.address().empty()) return std::nullopt;
      const auto lost = name.lost.find(rank.actor_id());
      if (lost != name.lost.end() && lost->second.until > absl::Now() && lost->second.actor.epoch == rank.epoch() &&
          lost->second.actor.address == rank.address()) {
        return std::nullopt;
      }
      addresses.push_back({rank.actor_id(), rank.epoch(), rank.address()});
    }
    return addresses;
  }
  const Death* DeathOf(const ActorAddress& actor) const {
    for (const auto& [key, name] : names_) {
      const auto found = name->deaths.find(actor.actor_id);
      if (found != name->deaths.end() && found->second.epoch == actor.epoch) return &found->second;
    }
    return nullptr;
  }
  bool Follows(const std::string& actor_id) const {
    return std::any_of(names_.begin(), names_.end(), [&](const auto& name) {
      if (name.second->deaths.count(actor_id) > 0) return true;
      return name.second->now.has_value() &&
             std::any_of(name.second->now->ranks().begin(), name.second->now->ranks().end(),
                         [&](const v1::ActorInfo& rank) { return rank.actor_id() == actor_id; });
    });
  }

  // ---- Without it
  void OnReply(const std::shared_ptr<Name>& name, NameStream* stream, const v1::ResolveReply& reply) {
    std::vector<std::pair<ActorAddress, absl::Status>> dead;
    {
      std::lock_guard lock(mu_);
      if (closed_ || name->stream.get() != stream) return;
      name->backoff = kRetryMin;
      for (const v1::ActorInfo& rank : reply.ranks()) {
        if (rank.died().code() == 0) continue;
        Death& death = name->deaths[rank.actor_id()];
        if (death.epoch == rank.epoch()) continue;
        death = {rank.epoch(), FromProto(rank.died())};
        dead.push_back({{rank.actor_id(), rank.epoch(), ""}, death.why});
      }
      // One that was replaced before its death was told: it is gone all the same.
      if (name->now.has_value()) {
        for (const v1::ActorInfo& before : name->now->ranks()) {
          for (const v1::ActorInfo& rank : reply.ranks()) {
            if (rank.actor_id() != before.actor_id() || rank.epoch() <= before.epoch()) continue;
            const auto death = name->deaths.find(rank.actor_id());
            if (death != name->deaths.end() && death->second.epoch == before.epoch()) continue;
            dead.push_back({{before.actor_id(), before.epoch(), ""},
                            absl::UnavailableError(absl::StrCat(before.actor_id(), " of epoch ", before.epoch(),
                                                                " is over: epoch ", rank.epoch(), " has begun"))});
          }
        }
      }
      name->now = reply;
    }
    for (const auto& [actor, why] : dead) {
      v1::ErrorInfo info = GetErrorInfo(why);
      if (info.origin() == v1::ORIGIN_UNSPECIFIED) info.set_origin(v1::ORIGIN_WORKER_DIED);
      calls_->FailActor(actor.actor_id, actor.epoch, WithErrorInfo(absl::UnavailableError(why.message()), info));
    }
    WakeReady();
  }
  void OnEnd(const std::shared_ptr<Name>& name, NameStream* stream) {
    std::lock_guard lock(mu_);
    if (!closed_ && name->stream.get() == stream) RetryLater(name);
  }
  // Every name's: an explanation may come by any of them.
  void WakeReady() {
    std::vector<std::shared_ptr<Waiting>> ready;
    {
      std::lock_guard lock(mu_);
      for (const auto& [key, name] : names_) {
        std::erase_if(name->waiting, [&](const std::shared_ptr<Waiting>& one) {
          if (!one->over && !one->ready(/*late=*/false)) return false;
          if (!std::exchange(one->over, true)) ready.push_back(one);
          return true;
        });
      }
    }
    for (const auto& one : ready) Run(*one);
  }
  static void Run(Waiting& one) {
    one.alarm.Cancel();
    Then then = std::move(one.then);
    one.ready = nullptr;
    then();
  }
  // Runs `then` once `ready`, which is at the latest after `timeout`.
  void Wait(const std::shared_ptr<Name>& name, absl::Duration timeout, std::function<bool(bool late)> ready,
            Then then) {
    auto one = std::make_shared<Waiting>();
    {
      std::lock_guard lock(mu_);
      if (!closed_ && !ready(/*late=*/false)) {
        one->ready = std::move(ready);
        one->then = std::move(then);
        Arm(name, one, absl::Now() + timeout);
        name->waiting.push_back(one);
        return;
      }
      if (closed_) ready(/*late=*/true);
    }
    then();
  }
  void Arm(const std::shared_ptr<Name>& name, const std::shared_ptr<Waiting>& one, absl::Time until) {
    // What is held back for a while is looked at again before the time is up.
    absl::Time at = until;
    for (const auto& [id, lost] : name->lost) {
      if (lost.until > absl::Now()) at = std::min(at, lost.until + absl::Milliseconds(1));
    }
    const std::weak_ptr<Impl> weak = weak_from_this();
    one->alarm.Set(calls_->queue(), absl::ToChronoTime(at), call::OnceTag::Make([weak, name, one, until](bool ok) {
                     const auto self = weak.lock();
                     if (!ok || self == nullptr) return;
                     {
                       std::lock_guard lock(self->mu_);
                       if (one->over) return;
                       const bool late = absl::Now() >= until;
                       if (!one->ready(late) && !late) {
                         if (!self->closed_) self->Arm(name, one, until);
                         return;
                       }
                       one->over = true;
                       std::erase(name->waiting, one);
                     }
                     Run(*one);
                   }));
  }
  void Shutdown() {
    std::vector<std::shared_ptr<Waiting>> waiting;
    {
      std::lock_guard lock(mu_);
      closed_ = true;
      for (const auto& [key, name] : names_) {
        End(*name);
        for (const auto& one : std::exchange(name->waiting, {})) {
          if (std::exchange(one->over, true)) continue;
          one->ready(/*late=*/true);
          waiting.push_back(one);
        }
      }
      names_.clear();
    }
    for (const auto& one : waiting) Run(*one);
  }

  call::CallClient* const calls_;
  const Options options_;
  std::mutex mu_;
  bool closed_ = false;
  uint64_t clock_ = 0;
  std::map<std::string, std::shared_ptr<Name>> names_;  // by name; of an actor that only an address was known of: "=ID"
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  absl::Status channel_error_;
};

ClusterResolver::ClusterResolver(call::CallClient* calls, Options options)
    : impl_(std::make_shared<Impl>(calls, std::move(options))) {}
ClusterResolver::~ClusterResolver() {
  Shutdown();
}
void ClusterResolver::Shutdown() {
  impl_->Shutdown();
}

void ClusterResolver::Resolve(const std::string& name, absl::Duration timeout,
                              absl::AnyInvocable<void(absl::StatusOr<std::vector<ActorAddress>>)> then) {
  std::shared_ptr<Impl::Name> entry;
  {
    std::lock_guard lock(impl_->mu_);
    if (!impl_->closed_) {
      v1::ResolveRequest what;
      what.set_name(name);
      entry = impl_->Find(name, what);
    }
  }
  if (entry == nullptr) return then(absl::CancelledError("the client was closed"));
  // Written with the lock held, read once it is final.
  auto result = std::make_shared<absl::StatusOr<std::vector<ActorAddress>>>(absl::UnknownError(""));
  const auto ready = [impl = impl_.get(), entry, name, timeout, result](bool late) {
    if (auto addresses = impl->Addresses(*entry)) {
      *result = *std::move(addresses);
      return true;
    }
    const bool known = entry->now.has_value();
    const absl::Status failed = known && entry->now->has_failed() ? FromProto(entry->now->failed()) : absl::OkStatus();
    if (failed.code() == absl::StatusCode::kAborted || failed.code() == absl::StatusCode::kNotFound) {
      *result = failed;  // nothing brings it back
      return true;
    }
    if (!late) return false;
    if (impl->closed_) {
      *result = absl::CancelledError("the client was closed");
    } else if (!known && !impl->channel_error_.ok()) {
      *result = impl->channel_error_;
    } else if (!known) {
      *result = absl::NotFoundError(absl::StrCat("no actor or group ", name, " came to be known at ", impl->address_,
                                                 " within ", absl::FormatDuration(timeout)));
    } else {
      *result = absl::DeadlineExceededError(absl::StrCat(name, " was not ready within ", absl::FormatDuration(timeout),
                                                         failed.ok() ? "" : ": ", std::string(failed.message())));
    }
    return true;
  };
  impl_->Wait(entry, timeout, ready, [result, then = std::move(then)]() mutable { then(*std::move(result)); });
}

void ClusterResolver::Lost(const std::string& name, const ActorAddress& actor) {
  std::lock_guard lock(impl_->mu_);
  const auto found = impl_->names_.find(name);
  if (found == impl_->names_.end()) return;
  Impl::Lost& lost = found->second->lost[actor.actor_id];
  if (lost.actor.epoch == actor.epoch && lost.actor.address == actor.address) return;  // it was held back before
  lost = {actor, absl::Now() + kHoldBack};
}

void ClusterResolver::Explain(const ActorAddress& actor, const absl::Status& status, absl::Duration timeout,
                              absl::AnyInvocable<void(absl::Status)> then) {
  std::shared_ptr<Impl::Name> entry;
  {
    std::lock_guard lock(impl_->mu_);
    if (!impl_->closed_ && !actor.actor_id.empty()) {
      if (impl_->Follows(actor.actor_id)) {
        entry = impl_->names_.begin()->second;  // whichever it comes by, all who wait look again
      } else {
        v1::ResolveRequest what;
        what.set_actor_id(actor.actor_id);
        entry = impl_->Find(absl::StrCat("=", actor.actor_id), what);
      }
    }
  }
  if (entry == nullptr) return then(status);
  auto result = std::make_shared<absl::Status>(status);
  const auto ready = [impl = impl_.get(), actor, result](bool late) {
    const Impl::Death* death = impl->DeathOf(actor);
    if (death != nullptr) *result = Explained(*result, death->why);
    return death != nullptr || late;
  };
  impl_->Wait(entry, timeout, ready, [result, then = std::move(then)]() mutable { then(*result); });
}

}  // namespace manta::actor

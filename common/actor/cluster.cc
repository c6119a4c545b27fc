#include "common/actor/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc/tls.h"
#include "common/rpc/token.h"
#include "grpcpp/client_context.h"
#include "manta/v1/cluster.grpc.pb.h"

namespace manta::actor {
namespace {

namespace fs = std::filesystem;

constexpr char kAddressFile[] = "controller.address";

bool IsCluster(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / kAddressFile, error);
}

// Asks the head each time, on a thread of its own. Names are asked for when a handle is first used, and when an actor
// has moved.
class FolderResolver final : public Resolver {
 public:
  FolderResolver(fs::path folder, std::string token)
      : head_(std::make_shared<Head>(Head{std::move(folder), std::move(token)})) {}

  void Resolve(const std::string& name, absl::Duration timeout,
               absl::AnyInvocable<void(absl::StatusOr<std::vector<ActorAddress>>)> then) override {
    std::thread([head = head_, name, until = absl::Now() + timeout, then = std::move(then)]() mutable {
      then(head->Find(name, until));
    }).detach();
  }
  void Explain(const ActorAddress& actor, const absl::Status& status, absl::Duration timeout,
               absl::AnyInvocable<void(absl::Status)> then) override {
    std::thread([head = head_, actor, status, until = absl::Now() + timeout, then = std::move(then)]() mutable {
      then(head->HowItDied(actor, status, until));
    }).detach();
  }

 private:
  struct Head {
    const fs::path folder;
    const std::string token;

    // Every answer about `what` until `enough` says so, or the time is up. A controller that is started again is looked
    // for anew: it may listen elsewhere.
    absl::Status Watch(const v1::ResolveRequest& what, absl::Time until,
                       const std::function<bool(const v1::ResolveReply&)>& enough) const {
      absl::Status status;
      do {
        absl::StatusOr<std::string> address = ReadHeadAddress(folder);
        if (!address.ok()) return address.status();
        auto channel = rpc::OpenChannel(*address, token);
        if (!channel.ok()) return channel.status();
        grpc::ClientContext context;
        context.set_deadline(absl::ToChronoTime(until));
        const auto reader = v1::ClusterService::NewStub(*channel)->Resolve(&context, what);
        v1::ResolveReply reply;
        while (reader->Read(&reply)) {
          if (!enough(reply)) continue;
          context.TryCancel();
          (void)reader->Finish();
          return absl::OkStatus();
        }
        status = rpc::FromGrpc(reader->Finish());
        if (!absl::IsUnavailable(status)) break;
        absl::SleepFor(std::clamp(until - absl::Now(), absl::ZeroDuration(), absl::Milliseconds(100)));
      } while (absl::Now() < until);
      return absl::IsDeadlineExceeded(status) ? absl::OkStatus() : status;
    }

    absl::StatusOr<std::vector<ActorAddress>> Find(const std::string& name, absl::Time until) const {
      v1::ResolveRequest request;
      request.set_name(name);
      std::vector<ActorAddress> ranks;
      absl::Status why = absl::NotFoundError(absl::StrCat("nothing is called ", name));
      MANTA_RETURN_IF_ERROR(Watch(request, until, [&](const v1::ResolveReply& reply) {
        ranks.clear();
        why = reply.failed().code() != 0 ? FromProto(reply.failed())
                                         : absl::DeadlineExceededError(absl::StrCat(name, " is not ready"));
        for (const v1::ActorInfo& rank : reply.ranks()) {
          if (rank.state() != v1::ACTOR_STATE_READY) {
            ranks.clear();
            return false;
          }
          ranks.push_back({rank.actor_id(), rank.epoch(), rank.address()});
        }
        return !ranks.empty();
      }));
      if (ranks.empty()) return why;
      return ranks;
    }

    absl::Status HowItDied(const ActorAddress& actor, const absl::Status& otherwise, absl::Time until) const {
      v1::ResolveRequest request;
      request.set_actor_id(actor.actor_id);
      absl::Status died = otherwise;
      (void)Watch(request, until, [&](const v1::ResolveReply& reply) {
        for (const v1::ActorInfo& rank : reply.ranks()) {
          if (rank.epoch() != actor.epoch || rank.died().code() == 0) continue;
          died = FromProto(rank.died());
          v1::ErrorInfo info = GetErrorInfo(died);
          info.set_outcome(GetErrorInfo(otherwise).outcome());  // what is known of the call stays
          died = WithErrorInfo(died, info);
          return true;
        }
        return false;
      });
      return died;
    }
  };
  const std::shared_ptr<Head> head_;
};

}  // namespace

fs::path DefaultClusterFolder() {
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr && home[0] != '\0' ? home : ".") / ".manta" / "default";
}

absl::StatusOr<fs::path> FindClusterFolder(const std::string& given) {
  const char* variable = std::getenv("MANTA_DIR");
  const std::string named = !given.empty() ? given : variable != nullptr ? variable : "";
  if (!named.empty()) {
    for (const fs::path& dir : {fs::path(named), fs::path(named) / "latest"}) {
      if (IsCluster(dir)) return dir;
    }
    return absl::NotFoundError(absl::StrCat(named, given.empty() ? " (MANTA_DIR)" : "",
                                            ": no cluster or run has started there (no ", kAddressFile, ")"));
  }
  for (const fs::path& dir : {fs::path("logs/latest"), DefaultClusterFolder()}) {
    if (IsCluster(dir)) return dir;
  }
  return absl::NotFoundError(absl::StrCat("no cluster: neither logs/latest nor ", DefaultClusterFolder().string(),
                                          " is one; give --dir, set MANTA_DIR, or start one with `manta launch`"));
}

absl::StatusOr<std::string> ReadHeadAddress(const fs::path& folder) {
  absl::StatusOr<std::string> text = ReadFile(folder / kAddressFile, 256);
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat(folder.string(), ": not the folder of a run that has started (",
                                            std::string(text.status().message()), ")"));
  }
  return text->substr(0, text->find('\n'));
}

absl::StatusOr<std::unique_ptr<Client>> ConnectToCluster(const std::string& given) {
  MANTA_ASSIGN_OR_RETURN(const fs::path folder, FindClusterFolder(given));
  MANTA_RETURN_IF_ERROR(ReadHeadAddress(folder).status());
  MANTA_RETURN_IF_ERROR(rpc::UseTlsFromEnvironment("", v1::ROLE_ADMIN));
  MANTA_ASSIGN_OR_RETURN(std::string token, rpc::ReadTokenFile(folder / "token"));
  auto resolver = std::make_shared<FolderResolver>(folder, token);
  return Client::Create({.token = std::move(token), .resolver = std::move(resolver)});
}

}  // namespace manta::actor

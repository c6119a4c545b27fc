#include "tests/bench/actor/starts.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "common/actor/client.h"
#include "common/actor/worker.h"
#include "grpcpp/client_context.h"
#include "tests/bench/actor/children.h"
#include "tests/bench/actor/raw.h"

namespace manta::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "bench_actor: %s\n", what.c_str());
  std::exit(69);
}

// A call of ClusterService with all that must live as long as it does.
struct Create {
  grpc::ClientContext context;
  v1::GroupRequest request;
  v1::GroupReply reply;
};
struct Remove {
  grpc::ClientContext context;
  v1::GroupRef request;
  v1::Done reply;
};

v1::GroupRequest OneActor(const std::string& role, bool prefork) {
  v1::GroupRequest request;
  request.set_role(role);
  request.set_executable(std::filesystem::read_symlink("/proc/self/exe").string());
  request.set_prefork(prefork);
  request.set_start_deadline_ms(absl::ToInt64Milliseconds(kPatience));
  request.mutable_restart()->set_kind(v1::RestartPolicy::FAIL_JOB);
  request.mutable_placement()->add_bundles()->set_cpu_slots(1);
  request.mutable_placement()->set_deadline_ms(absl::ToInt64Milliseconds(kPatience));
  return request;
}

double StartAll(const testing::LaunchedCluster& cluster, actor::Client& client, const std::string& name, int count,
                bool prefork) {
  std::vector<std::unique_ptr<Create>> creates;
  std::vector<std::unique_ptr<Remove>> removes;
  std::atomic<int> left{count};
  double seconds = 0;
  client.calls().RunUntil([&](std::function<void()> notify) {
    const absl::Time begin = absl::Now();
    const auto answered = [&, begin, notify](const absl::StatusOr<std::string>& reply) {
      if (!reply.ok()) Fail(absl::StrCat("an actor does not answer: ", std::string(reply.status().message())));
      if (left.fetch_sub(1) > 1) return;
      seconds = absl::ToDoubleSeconds(absl::Now() - begin);
      notify();
    };
    for (int i = 0; i < count; ++i) {
      Create* create = creates.emplace_back(std::make_unique<Create>()).get();
      create->request = OneActor(absl::StrCat(name, "_", i), prefork);
      create->context.set_deadline(absl::ToChronoTime(begin + kPatience));
      cluster.stub()->async()->CreateGroup(&create->context, &create->request, &create->reply,
                                           [create, answered, &client](const grpc::Status& status) {
                                             if (!status.ok())
                                               Fail(absl::StrCat("an actor does not start: ", status.error_message()));
                                             const v1::ActorInfo& actor = create->reply.ranks(0);
                                             client.ActorAt({actor.actor_id(), actor.epoch(), actor.address()})
                                                 .StartBytes("echo", "hello", {.deadline = kPatience}, answered);
                                           });
    }
  });
  absl::BlockingCounter gone(count);
  for (int i = 0; i < count; ++i) {
    Remove* remove = removes.emplace_back(std::make_unique<Remove>()).get();
    remove->request.set_role(absl::StrCat(name, "_", i));
    remove->request.set_grace_ms(2000);
    remove->context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    cluster.stub()->async()->RemoveGroup(&remove->context, &remove->request, &remove->reply,
                                         [&gone](const grpc::Status&) { gone.DecrementCount(); });
  }
  gone.Wait();
  return seconds;
}

}  // namespace

bool IsActor() {
  return std::getenv("MANTA_SHIM_FD") != nullptr || std::getenv("MANTA_ZYGOTE_FD") != nullptr;
}

int ServeActor(int argc, char** argv) {
  auto worker = actor::Worker::Create(argc, argv);
  if (!worker.ok()) return actor::Fail(worker.status());
  (*worker)->HandleBytes("echo", [](actor::CallContext& context, std::string* reply) {
    reply->assign(context.payload());
    return absl::OkStatus();
  });
  return (*worker)->Run();
}

double ActorsStartedPerSecond(const testing::LaunchedCluster& cluster, int count, bool prefork) {
  auto client = actor::Client::Create({.token = cluster.token()});
  if (!client.ok()) Fail(std::string(client.status().message()));
  // The first one: of a pre-forked kind it makes the pool that the others come from.
  StartAll(cluster, **client, prefork ? "first_forked" : "first", 1, prefork);
  return count / StartAll(cluster, **client, prefork ? "forked" : "cold", count, prefork);
}

double RawServersStartedPerSecond(const std::string& token, int count) {
  const absl::Time begin = absl::Now();
  std::vector<std::unique_ptr<Child>> servers;
  for (int i = 0; i < count; ++i)
    servers.push_back(std::make_unique<Child>(std::vector<std::string>{"--serve", "raw"}));
  for (const auto& server : servers) {
    if (!RawCallOnce(server->Read("listening"), token)) Fail("a bare gRPC server does not answer");
  }
  return count / absl::ToDoubleSeconds(absl::Now() - begin);
}

}  // namespace manta::bench

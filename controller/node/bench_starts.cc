// How many workers a node starts in a second: from the agent's order to the worker's word that it serves, all ordered
// at once. `bench_starts [N] [--prefork]` prints one line of JSON.
#include <sys/prctl.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/token.h"
#include "controller/node/launcher.h"
#include "controller/node/local_processes.h"
#include "controller/node/state_dir.h"

namespace manta::node {
namespace {

int Main(int argc, char** argv) {
  int count = 100;
  bool prefork = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--prefork") {
      prefork = true;
    } else if (!absl::SimpleAtoi(argv[i], &count) || count < 1) {
      std::fprintf(stderr, "usage: bench_starts [N] [--prefork]\n");
      return 64;
    }
  }
  const std::filesystem::path bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / absl::StrCat("bench_starts.", getpid());
  std::filesystem::create_directories(dir / "logs");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int launcher = ForkLauncher((dir / "state").string(), 0, nullptr).value();
  const StateDir state = StateDir::Open((dir / "state").string()).value();
  (void)rpc::CreateTokenFile(dir / "token").value();

  EventLoop loop;
  LocalProcesses processes(loop, launcher, state.path(), state.agent_key());
  int ready = 0, ended = 0, gone = 0;
  processes.on_report = [&](ShimId, const v1::ShimReport& report) {
    for (const auto& actor : report.actors()) {
      ready += actor.worker().has_ready();
      ended += actor.has_exited() || actor.has_start_failed();
      if (actor.has_start_failed()) std::fprintf(stderr, "%s\n", actor.start_failed().message().c_str());
    }
    if (ready + ended >= count) loop.Stop();
  };
  processes.on_gone = [&](ShimId, const std::string&) {
    if (++gone == count || prefork) loop.Stop();
  };
  std::map<std::string, ShimId> shims;
  const auto start = [&](int i) {
    const std::string id = absl::StrCat("bench-", i);
    const ShimId shim =
        prefork && !shims.empty() ? shims.begin()->second : processes.StartShim({.name = id + ".1", .agent_grace = {}});
    shims[id] = shim;
    v1::ShimOrder order;
    v1::StartActor* actor = order.mutable_start();
    actor->set_actor_id(id);
    actor->set_epoch(1);
    actor->set_executable((bin / "runtime_worker").string());
    actor->set_log_path((dir / "logs" / (id + ".log")).string());
    actor->set_prefork(prefork);
    auto& env = *actor->mutable_env();
    env["MANTA_ACTOR_ID"] = id;
    env["MANTA_EPOCH"] = absl::StrCat(1);
    env["MANTA_TOKEN_FILE"] = (dir / "token").string();
    return processes.Send(shim, order);
  };
  const absl::Time begin = absl::Now();
  for (int i = 0; i < count; ++i) {
    // A few at a time: a socket holds so many packets.
    while (!start(i)) loop.RunFor(absl::Milliseconds(1));
    if (i % 8 == 7) loop.RunFor(absl::ZeroDuration());
  }
  if (ready + ended < count) loop.RunFor(absl::Seconds(60));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  std::printf("{\"workers\": %d, \"ready\": %d, \"prefork\": %s, \"workers_ready_per_s\": %.1f}\n", count, ready,
              prefork ? "true" : "false", ready / seconds);
  for (const auto& [id, shim] : shims) processes.KillShim(shim);
  loop.RunFor(absl::Seconds(2));
  std::filesystem::remove_all(dir);
  return ready == count ? 0 : 1;
}

}  // namespace
}  // namespace manta::node

int main(int argc, char** argv) {
  return manta::node::Main(argc, argv);
}

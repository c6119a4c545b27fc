// manta-node: the agent on each node, and, as `manta-node --shim`, the parent of each worker.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/event_loop.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "controller/node/agent.h"
#include "controller/node/controller_link.h"
#include "controller/node/resources.h"
#include "controller/node/shim.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace manta::node {
namespace {

struct Flags {
  std::string controller, token_file, name;
  int cpu_slots = 0;
  int parent_pid = 0;
  std::vector<std::string> labels;
};

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "node";
}

absl::StatusOr<v1::NodeHello> Hello(const Flags& flags, const std::vector<v1::Gpu>& gpus) {
  v1::NodeHello hello;
  hello.set_node(flags.name.empty() ? HostName() : flags.name);
  hello.set_host_id(HostId());
  hello.set_cpu_slots(flags.cpu_slots > 0 ? flags.cpu_slots : AvailableCpus());
  hello.set_memory_bytes(TotalMemoryBytes());
  hello.set_pid(getpid());
  for (const v1::Gpu& gpu : gpus) *hello.add_gpus() = gpu;
  for (const std::string& label : flags.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos) return UserError(absl::StrCat("--label ", label, ": expected KEY=VALUE"));
    (*hello.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return hello;
}

absl::Status RunAgent(const Flags& flags) {
  MANTA_ASSIGN_OR_RETURN(const std::string token, rpc::ReadTokenFile(flags.token_file));
  MANTA_ASSIGN_OR_RETURN(const auto channel, rpc::OpenChannel(flags.controller, token));
  const std::vector<v1::Gpu> gpus = FindGpus();
  MANTA_ASSIGN_OR_RETURN(const v1::NodeHello hello, Hello(flags, gpus));
  const auto stub = v1::NodeService::NewStub(channel);

  EventLoop loop;
  absl::Status result;
  std::unique_ptr<ControllerLink> link;
  bool done = false;
  Agent agent(
      loop, gpus,
      [&](const v1::NodeEvent& event) {
        if (link) link->Send(event);
      },
      [&] {
        done = true;
        if (link) link->Finish();
        // The last events reach the controller, which then ends the stream; or it is gone already.
        loop.RunAfter(absl::Milliseconds(link ? 500 : 0), [&] { loop.Stop(); });
      });
  link = ControllerLink::Open(
      loop, stub.get(), [&](const v1::NodeCommand& command) { agent.OnCommand(command); },
      [&](const absl::Status& status) {
        link.reset();
        if (done) {
          loop.Stop();
          return;
        }
        if (!status.ok()) {
          result = Annotate(status, absl::StrCat("the controller at ", flags.controller, " is gone"));
          spdlog::error("{}: ending all actors", std::string(result.message()));
        }
        agent.Shutdown(absl::Seconds(1));
      });
  v1::NodeEvent event;
  *event.mutable_hello() = hello;
  link->Send(event);

  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  loop.WatchReadable(signals, [&] {
    signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) <= 0) return;
    spdlog::info("stopping on signal {}", info.ssi_signo);
    agent.Shutdown(absl::Seconds(1));
  });
  const int parent = flags.parent_pid > 0 ? OpenPidFd(flags.parent_pid) : -1;
  if (flags.parent_pid > 0 && parent < 0) return absl::CancelledError("the process that started this agent is gone");
  if (parent >= 0) {
    loop.WatchReadable(parent, [&] {
      loop.Unwatch(parent);
      // The controller sees the same and stops the run in order; this is for the case that it cannot.
      loop.RunAfter(absl::Seconds(2), [&] { agent.Shutdown(absl::Seconds(1)); });
    });
  }
  loop.Run();
  link.reset();
  return result;
}

int Main(int argc, char** argv) {
  if (argc >= 3 && std::string_view(argv[1]) == "--shim") {
    return ShimMain(std::vector<std::string>(argv + 2, argv + argc));
  }
  Flags flags;
  CLI::App app("The Manta node agent: joins a controller, then starts and watches the workers that it is told to.");
  app.add_option("--controller", flags.controller, "HOST:PORT of the controller")->required();
  app.add_option("--token-file", flags.token_file, "the job token")->required();
  app.add_option("--name", flags.name, "this node's name in the cluster (the host's name)");
  app.add_option("--cpu-slots", flags.cpu_slots, "CPU slots to offer (as many as there are CPUs)")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--label", flags.labels, "KEY=VALUE, for placement; may be repeated");
  app.add_option("--parent-pid", flags.parent_pid, "end when this process is gone");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  auto logger = std::make_shared<spdlog::logger>("node", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // before any thread, so that only the loop's descriptor sees them
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // a killed shim's worker comes here to be reaped
  const absl::Status status = RunAgent(flags);
  if (!status.ok()) std::fprintf(stderr, "manta-node: error: %s\n", std::string(status.message()).c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace manta::node

int main(int argc, char** argv) {
  return manta::node::Main(argc, argv);
}

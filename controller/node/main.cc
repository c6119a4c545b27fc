// manta-node: the agent on each node. It forks the launcher of its shims before it has any thread, takes over what an
// earlier agent of this node has left running, and joins the controller.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/event_loop.h"
#include "common/base/file.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/rpc/credentials.h"
#include "common/rpc/probe_server.h"
#include "common/rpc/tls.h"
#include "common/rpc/token.h"
#include "controller/node/agent_core.h"
#include "controller/node/grpc_uplink.h"
#include "controller/node/launcher.h"
#include "controller/node/local_host.h"
#include "controller/node/local_processes.h"
#include "controller/node/memory_group.h"
#include "controller/node/resources.h"
#include "controller/node/state_dir.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace manta::node {
namespace {

struct Flags {
  std::string controller, token_file, name, state_dir;
  int cpu_slots = 0;
  int parent_pid = 0;
  std::vector<std::string> labels, gpu_slots;
  std::string address, probe_listen;
};

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "node";
}

absl::StatusOr<v1::NodeHello> Hello(const Flags& flags, uint64_t incarnation) {
  v1::NodeHello hello;
  hello.set_node(flags.name);
  hello.set_host_id(HostId());
  hello.set_cpu_slots(flags.cpu_slots > 0 ? flags.cpu_slots : AvailableCpus());
  hello.set_memory_bytes(TotalMemoryBytes());
  hello.set_pid(getpid());
  hello.set_incarnation(incarnation);
  if (const absl::Status groups = ProbeMemoryGroups(); !groups.ok()) {
    spdlog::warn("memory limits of actors are RLIMIT_DATA: {}", std::string(groups.message()));
    hello.add_missing("cgroup-memory");
  }
  for (v1::Gpu& gpu : FindGpus()) {
    gpu.mutable_slots()->Add(flags.gpu_slots.begin(), flags.gpu_slots.end());
    *hello.add_gpus() = std::move(gpu);
  }
  hello.set_address(!flags.address.empty()              ? flags.address
                    : rpc::IsLoopback(flags.controller) ? "127.0.0.1"
                                                        : HostName());
  for (const std::string& label : flags.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos) return UserError(absl::StrCat("--label ", label, ": expected KEY=VALUE"));
    (*hello.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return hello;
}

// Where the head is now: one that was started again may listen elsewhere, and says so in a file beside the token. What
// the file says of a loopback address is meant for agents that were told one themselves.
std::string HeadAddress(const Flags& flags) {
  const auto file = std::filesystem::path(flags.token_file).parent_path() / "controller.address";
  std::string address = ReadFile(file, 256).value_or("");
  while (!address.empty() && address.back() == '\n') address.pop_back();
  if (address.empty() || (rpc::IsLoopback(address) && !rpc::IsLoopback(flags.controller))) return flags.controller;
  return address;
}

absl::Status RunAgent(const Flags& flags, int launcher) {
  MANTA_RETURN_IF_ERROR(rpc::UseTlsFromEnvironment(flags.name, v1::ROLE_NODE));
  MANTA_ASSIGN_OR_RETURN(const std::string token, rpc::ReadTokenFile(flags.token_file));
  MANTA_ASSIGN_OR_RETURN(const StateDir state, StateDir::Open(flags.state_dir));
  MANTA_ASSIGN_OR_RETURN(v1::NodeHello hello, Hello(flags, state.incarnation()));

  EventLoop loop;
  LocalHost host(loop, state.path());
  LocalProcesses processes(loop, launcher, state.path(), state.agent_key());
  GrpcUplink uplink(loop, [&] { return GrpcUplink::Target{HeadAddress(flags), token}; });
  absl::Status result;
  bool done = false, stopping = false;
  AgentCore agent(
      loop, processes, uplink, host,
      {.hello = std::move(hello), .token_file = host.worker_token_file(), .controller_address = flags.controller},
      [&](const absl::Status& status) {
        result = status;
        done = true;
        uplink.Close();
        // The last events reach the controller, which then ends the stream; or it is gone already.
        loop.RunAfter(absl::Milliseconds(status.ok() ? 500 : 0), [&] { loop.Stop(); });
      });
  processes.on_report = [&](ShimId shim, const v1::ShimReport& report) { agent.OnShim(shim, report); };
  processes.on_gone = [&](ShimId shim, const std::string& why) { agent.OnShimGone(shim, why); };
  uplink.on_command = [&](const v1::NodeCommand& command) { agent.OnCommand(command); };
  uplink.on_down = [&](UplinkLoss loss, const absl::Status& status) {
    agent.OnUplinkDown(loss, status);
    if (done) loop.Stop();
  };

  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  loop.WatchReadable(signals, [&] {
    signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) <= 0) return;
    spdlog::info("stopping on signal {}", info.ssi_signo);
    stopping = true;
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
  std::unique_ptr<rpc::ProbeServer> probes;
  if (!flags.probe_listen.empty()) {
    const auto ready = [&] {
      return stopping         ? absl::UnavailableError("stopping")
             : agent.joined() ? absl::OkStatus()
                              : absl::UnavailableError("not joined");
    };
    MANTA_ASSIGN_OR_RETURN(probes, rpc::ProbeServer::Start(loop, {.listen = flags.probe_listen, .ready = ready}));
  }
  agent.Start();
  loop.Run();
  return result;
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--launcher") return LauncherMain(argv[2], argc, argv);
  Flags flags;
  CLI::App app("The Manta node agent: joins a controller, then starts and watches the workers that it is told to.");
  app.add_option("--controller", flags.controller, "HOST:PORT of the controller")->required();
  app.add_option("--token-file", flags.token_file, "the agents' token, or the job's")->required();
  app.add_option("--name", flags.name, "this node's name in the cluster (the host's name)");
  app.add_option("--state-dir", flags.state_dir,
                 "folder by which a restarted agent finds its workers (node-NAME beside the token)");
  app.add_option("--cpu-slots", flags.cpu_slots, "CPU slots to offer (as many as there are CPUs)")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--label", flags.labels, "KEY=VALUE, for placement; may be repeated");
  app.add_option("--gpu-slot", flags.gpu_slots, "a role that may share each GPU with others; may be repeated");
  app.add_option("--address", flags.address, "what other nodes reach this one by (the host's name)");
  app.add_option("--probe-listen", flags.probe_listen, "HOST:PORT for HTTP probes: /healthz and /readyz");
  app.add_option("--parent-pid", flags.parent_pid, "end when this process is gone");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  if (flags.name.empty()) flags.name = HostName();
  if (flags.state_dir.empty()) {
    flags.state_dir = (std::filesystem::path(flags.token_file).parent_path() / ("node-" + flags.name)).string();
  }
  flags.state_dir = std::filesystem::absolute(flags.state_dir).string();

  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // before any thread, so that only the loop's descriptor sees them
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);                                 // what a killed launcher leaves comes here
  const auto launcher = ForkLauncher(flags.state_dir, argc, argv);  // before any thread, too
  auto logger = std::make_shared<spdlog::logger>("node", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  const absl::Status status = launcher.ok() ? RunAgent(flags, *launcher) : launcher.status();
  if (!status.ok()) std::fprintf(stderr, "manta-node: error: %s\n", std::string(status.message()).c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace manta::node

int main(int argc, char** argv) {
  return manta::node::Main(argc, argv);
}

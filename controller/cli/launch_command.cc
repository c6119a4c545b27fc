// `manta launch`: a cluster on this machine that stays: a controller and a node agent in the background. `manta join`
// brings further machines.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/cluster.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/keys.h"
#include "common/rpc/token.h"
#include "controller/cli/child.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/daemon.h"
#include "controller/cli/run_dir.h"
#include "nlohmann/json.hpp"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStartDeadline = absl::Seconds(20);

struct NodeOptions {
  std::string name;
  int cpu_slots = 0;
  std::vector<std::string> labels;
};

struct LaunchOptions {
  CommonOptions common;
  NodeOptions node;
  std::string listen = "127.0.0.1:0";
  bool no_node = false, discard_journal = false;
};

struct JoinOptions {
  CommonOptions common;
  NodeOptions node;
  std::string address, token_file;
  bool foreground = false;
};

void AddNodeOptions(CLI::App& command, NodeOptions* node) {
  command.add_option("--name", node->name, "this node's name in the cluster (the host's name)");
  command.add_option("--cpu-slots", node->cpu_slots, "CPU slots to offer (as many as there are CPUs)")
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("--label", node->labels, "KEY=VALUE, for placement; may be repeated")->allow_extra_args(false);
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "node";
}

std::vector<std::string> NodeArgs(const NodeOptions& node, const std::string& name, const std::string& address,
                                  const fs::path& token_file) {
  std::vector<std::string> args = {"--controller", address, "--token-file", token_file.string(), "--name", name};
  if (node.cpu_slots > 0) args.insert(args.end(), {"--cpu-slots", absl::StrCat(node.cpu_slots)});
  for (const std::string& label : node.labels) args.insert(args.end(), {"--label", label});
  return args;
}

// Starts the agent unless the one of that name runs already.
absl::Status StartNode(const NodeOptions& node, const fs::path& dir, const std::string& address,
                       const fs::path& token_file) {
  const std::string name = node.name.empty() ? HostName() : node.name;
  const fs::path pid_file = dir / absl::StrCat("node-", name, ".pid");
  if (RunningDaemon(pid_file, "manta-node") != 0) return absl::OkStatus();
  return StartDaemon({.name = "manta-node",
                      .executable = BinDir() / "manta-node",
                      .args = NodeArgs(node, name, address, token_file),
                      .log = dir / "logs" / absl::StrCat("node-", name, ".log"),
                      .pid_file = pid_file},
                     absl::ZeroDuration())
      .status();
}

// Where a cluster, or this machine's part of it, is made: it need not be there yet.
fs::path OwnDir(const std::string& given) {
  const char* variable = std::getenv("MANTA_DIR");
  if (!given.empty()) return given;
  return variable != nullptr && variable[0] != '\0' ? fs::path(variable) : actor::DefaultClusterFolder();
}

absl::Status MakeDir(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir / "logs", error);
  if (error) return ErrnoError("create the folder", dir / "logs", error.value());
  fs::permissions(dir, fs::perms::owner_all, error);
  return absl::OkStatus();
}

// Theirs, or that of everyone where there is but one.
fs::path AgentsTokenFile(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / "token.node", error) ? dir / "token.node" : dir / "token";
}

absl::Status WaitNodes(ClusterClient& client, int nodes) {
  v1::WaitNodesRequest request;
  request.set_nodes(nodes);
  request.set_timeout_ms(absl::ToInt64Milliseconds(kStartDeadline));
  return client.Call(&v1::ClusterService::Stub::WaitNodes, client.cluster(), request, kStartDeadline + absl::Seconds(2))
      .status();
}

absl::Status Launch(const LaunchOptions& options) {
  const absl::Time start = absl::Now();
  std::error_code error;
  const fs::path dir = fs::absolute(OwnDir(options.common.dir), error);
  MANTA_RETURN_IF_ERROR(MakeDir(dir));
  if (const pid_t pid = RunningDaemon(dir / "controller.pid", "manta-controller"); pid != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("a cluster runs in ", dir.string(), " (controller's pid ", pid, "); `manta stop --all` ends it"));
  }
  const fs::path token_file = dir / "token";
  if (!fs::exists(token_file, error)) MANTA_RETURN_IF_ERROR(rpc::RoleTokens::InFolder(dir).status());
  std::vector<std::string> args = {"--cluster",         "--run-dir", dir.string(),  "--token-file",
                                   token_file.string(), "--listen",  options.listen};
  if (options.discard_journal) args.push_back("--discard-journal");
  MANTA_ASSIGN_OR_RETURN(const Daemon head, StartDaemon({.name = "manta-controller",
                                                         .executable = BinDir() / "manta-controller",
                                                         .args = args,
                                                         .log = dir / "logs" / "controller.log",
                                                         .pid_file = {}},  // it writes its own
                                                        kStartDeadline));
  if (!absl::StartsWith(head.first_line, "listening ")) {
    return absl::InternalError(
        absl::StrCat("manta-controller said '", head.first_line, "', expected 'listening HOST:PORT'"));
  }
  const std::string address = head.first_line.substr(10);
  if (!options.no_node) {
    MANTA_RETURN_IF_ERROR(StartNode(options.node, dir, address, AgentsTokenFile(dir)));
    MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(dir.string()));
    MANTA_RETURN_IF_ERROR(WaitNodes(client, 1));
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (options.common.json) {
    std::printf("%s\n",
                nlohmann::json({{"dir", dir.string()}, {"address", address}, {"pid", head.pid}, {"ready_s", seconds}})
                    .dump()
                    .c_str());
  } else {
    std::printf("cluster: %s, ready after %.2f s\nfolder:  %s\n", address.c_str(), seconds, dir.c_str());
  }
  return absl::OkStatus();
}

// Whether the node is there, and what the cluster says of it.
absl::StatusOr<bool> HasJoined(ClusterClient& client, const std::string& name) {
  v1::ListRequest request;
  request.set_nodes(true);
  MANTA_ASSIGN_OR_RETURN(const v1::ListReply reply,
                         client.Call(&v1::ClusterService::Stub::List, client.cluster(), request, kAnswerDeadline));
  for (const v1::NodeInfo& node : reply.nodes()) {
    if (node.node() == name && node.state() != "LOST" && node.state() != "LEFT") return true;
  }
  return false;
}

absl::Status Join(const JoinOptions& options) {
  std::error_code error;
  const fs::path dir = fs::absolute(OwnDir(options.common.dir), error);
  const fs::path token_file = options.token_file.empty() ? AgentsTokenFile(dir) : fs::absolute(options.token_file, error);
  MANTA_ASSIGN_OR_RETURN(const std::string token, rpc::ReadTokenFile(token_file));
  const std::string name = options.node.name.empty() ? HostName() : options.node.name;
  if (options.foreground) {
    std::vector<std::string> args = NodeArgs(options.node, name, options.address, token_file);
    const fs::path executable = BinDir() / "manta-node";
    args.insert(args.begin(), executable.string());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    execv(executable.c_str(), argv.data());
    return ErrnoError("execute", executable, errno);
  }
  MANTA_RETURN_IF_ERROR(MakeDir(dir));
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::OpenAt(options.address, token, dir));
  MANTA_ASSIGN_OR_RETURN(const bool there, HasJoined(client, name));
  if (there) return absl::AlreadyExistsError(absl::StrCat("a node ", name, " has joined already; give another --name"));
  MANTA_RETURN_IF_ERROR(StartNode(options.node, dir, options.address, token_file));
  const fs::path pid_file = dir / absl::StrCat("node-", name, ".pid");
  for (const absl::Time deadline = absl::Now() + kStartDeadline; absl::Now() < deadline;) {
    MANTA_ASSIGN_OR_RETURN(const bool joined, HasJoined(client, name));
    if (joined) {
      if (options.common.json) {
        std::printf("%s\n", nlohmann::json({{"node", name}, {"address", options.address}}).dump().c_str());
      } else {
        std::printf("%s has joined %s\n", name.c_str(), options.address.c_str());
      }
      return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError(absl::StrCat("the agent has not joined; its log is ",
                                                  (dir / "logs" / absl::StrCat("node-", name, ".log")).string()));
}

}  // namespace

void AddLaunch(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* command = app.add_subcommand("launch", "Start a cluster on this machine that stays in the background");
  AddNodeOptions(*command, &options->node);
  command->add_option("--listen", options->listen, "HOST:PORT of the controller; port 0: any")->capture_default_str();
  command->add_flag("--no-node", options->no_node, "the controller alone: nodes join later");
  command->add_flag("--discard-journal", options->discard_journal, "begin anew where the journal is damaged");
  AddCommonOptions(*command, &options->common);
  command->footer(
      "\nA cluster that was ended by a crash goes on where it was: launch it again in the same folder.\n"
      "Example:\n  manta launch && manta submit configs/quickstart_grpo.yaml --follow && manta stop --all");
  commands->push_back({command, [options] { return Launch(*options); }});
}

void AddJoin(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<JoinOptions>();
  CLI::App* command = app.add_subcommand("join", "Let this machine join a cluster");
  command->add_option("address", options->address, "HOST:PORT of its controller")->required();
  command->add_option("--token-file", options->token_file, "the agents' token (FOLDER/token.node)");
  AddNodeOptions(*command, &options->node);
  command->add_flag("--foreground", options->foreground, "be the agent, until it ends");
  AddCommonOptions(*command, &options->common);
  commands->push_back({command, [options] { return Join(*options); }});
}

}  // namespace manta::cli

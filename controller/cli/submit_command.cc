// `manta submit CONFIG`: a run as a job of a cluster.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/config/keys.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "controller/cli/check.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/output.h"
#include "controller/cli/run_command.h"
#include "controller/cli/run_dir.h"
#include "controller/cli/terminal.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

struct SubmitOptions {
  CommonOptions common;
  std::string config, name;
  std::vector<std::string> overrides;
  int priority = 0, nodes = 0;
  bool follow = false;
};

// Shows the job's events until its end, which is also this command's.
absl::Status Follow(ClusterClient& client, const std::string& job, const fs::path& run_dir) {
  ProgressView view;
  uint64_t last = 0;
  // A controller that is started again takes the stream up where it was.
  for (int attempts = 0; attempts < 600; ++attempts) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Hours(24 * 365)));
    v1::WatchRunRequest request;
    request.set_after_sequence(last);
    request.set_job(job);
    const auto reader = client.runs().WatchRun(&context, request);
    v1::RunEvent event;
    while (reader->Read(&event)) {
      attempts = 0;
      last = event.sequence();
      if (!event.has_ended()) {
        view.Show(event);
        continue;
      }
      view.Clear();
      const v1::RunEnded& ended = event.ended();
      if (!ended.summary().empty()) std::printf("%s\n", ended.summary().c_str());
      if (!ended.checkpoint().empty()) std::printf("checkpoint: %s\n", ended.checkpoint().c_str());
      if (ended.status().code() != 0) std::fprintf(stderr, "manta: logs are in %s\n", (run_dir / "logs").c_str());
      return FromProto(ended.status());
    }
    const absl::Status status = rpc::FromGrpc(reader->Finish());
    if (!status.ok() && !absl::IsUnavailable(status) && !absl::IsNotFound(status)) return status;
    absl::SleepFor(absl::Milliseconds(200));  // NOT_FOUND: it waits in the queue, and has no events yet
  }
  return absl::UnavailableError(
      absl::StrCat("the controller at ", client.address(), " is gone, and with it what became of ", job));
}

// With --nodes as cluster.num_nodes where neither the file nor an override says that.
absl::StatusOr<config::Tree> Load(const SubmitOptions& options) {
  MANTA_ASSIGN_OR_RETURN(config::Tree tree, config::LoadTree(options.config, options.overrides));
  if (options.nodes == 0 || tree.IsWritten("cluster.num_nodes") || tree.algorithm() == config::Algorithm::kActors) return tree;
  std::vector<std::string> overrides = options.overrides;
  overrides.push_back(absl::StrCat("+cluster.num_nodes=", options.nodes));
  return config::LoadTree(options.config, overrides);
}

// The same run for processes that work in other folders: of relative paths those that name something here become absolute.
absl::StatusOr<config::Tree> ForOtherFolders(const SubmitOptions& options, const config::Tree& tree) {
  std::vector<std::string> overrides = options.overrides;
  if (tree.IsWritten("cluster.num_nodes")) {
    overrides.push_back(absl::StrCat("+cluster.num_nodes=", tree.GetInt("cluster.num_nodes").value_or(1)));
  }
  constexpr char kCheckpoints[] = "checkpointing.checkpoint_dir";
  std::error_code error;
  for (const config::Key& key : config::AllKeys()) {
    const config::Node* node = key.input_path || key.path == kCheckpoints ? tree.Find(key.path) : nullptr;
    if (node == nullptr || !node->is_scalar() || node->scalar.empty() || fs::path(node->scalar).is_absolute()) continue;
    if (key.input_path && !fs::exists(node->scalar, error)) continue;
    const std::string path = fs::absolute(node->scalar, error).lexically_normal().string();
    overrides.push_back(absl::StrCat("+", key.path, "='", absl::StrReplaceAll(path, {{"'", "''"}}), "'"));
  }
  return config::LoadTree(options.config, overrides);
}

absl::Status Submit(const SubmitOptions& options) {
  MANTA_ASSIGN_OR_RETURN(const config::Tree tree, Load(options));
  MANTA_ASSIGN_OR_RETURN(const config::RunConfig run, config::ParseRunConfig(tree));
  for (const std::string& warning : run.warnings) PrintWarning(warning);
  MANTA_RETURN_IF_ERROR(CheckRun(tree, run));
  MANTA_ASSIGN_OR_RETURN(const config::Tree absolute, ForOtherFolders(options, tree));
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  MANTA_ASSIGN_OR_RETURN(const fs::path made, MakeRunDir(run.logger.log_dir));
  std::error_code error;
  const fs::path run_dir = fs::absolute(made, error);
  MANTA_ASSIGN_OR_RETURN(const fs::path config_path,
                         WriteResolvedConfig(run_dir, absolute, run, absl::StrCat("manta submit ", options.config)));
  MANTA_ASSIGN_OR_RETURN(const std::string yaml, ReadFile(config_path));
  v1::SubmitRequest request;
  request.set_key(run_dir.string());  // asking again is answered with the same job
  request.set_name(options.name.empty() ? fs::path(options.config).stem().string() : options.name);
  request.set_config_yaml(yaml);
  request.set_run_dir(run_dir.string());
  request.set_priority(options.priority);
  request.set_working_dir(fs::current_path(error).string());
  MANTA_ASSIGN_OR_RETURN(const v1::JobInfo job,
                         client.Call(&v1::ClusterService::Stub::SubmitJob, client.cluster(), request, kAnswerDeadline));
  if (options.common.json) {
    PrintJson(job);
  } else {
    std::printf("job: %s\nrun folder: %s\n", job.job().c_str(), run_dir.c_str());
  }
  std::fflush(stdout);
  if (!options.follow) return absl::OkStatus();
  return WithProgramsExitCode(run, Follow(client, job.job(), run_dir));
}

}  // namespace

void AddSubmit(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Hand a run to a cluster as a job");
  command->add_option("config", options->config, "the configuration, a YAML file")->required();
  command->add_option("overrides", options->overrides, "key=value, +key=value or ~key");
  command->add_option("--name", options->name, "what people call it (the file's name)");
  command->add_option("--priority", options->priority, "higher ones are placed first")->capture_default_str();
  command->add_option("--nodes", options->nodes, "cluster.num_nodes, where the configuration does not say it")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--follow", options->follow,
                    "show its progress until its end; then its exit code is this command's");
  AddCommonOptions(*command, &options->common);
  commands->push_back({command, [options] { return Submit(*options); }});
}

}  // namespace manta::cli

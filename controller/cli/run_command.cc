#include "controller/cli/run_command.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "controller/cli/check.h"
#include "controller/cli/child.h"
#include "controller/cli/job.h"
#include "controller/cli/run_dir.h"
#include "controller/cli/terminal.h"

namespace manta::cli {
namespace {

absl::Status RunJob(const config::Tree& tree, const config::RunConfig& run, const RunOptions& options) {
  MANTA_ASSIGN_OR_RETURN(const std::filesystem::path run_dir, MakeRunDir(run.logger.log_dir));
  std::printf("run folder: %s\n", run_dir.c_str());
  std::fflush(stdout);
  MANTA_ASSIGN_OR_RETURN(const std::filesystem::path config_path, WriteResolvedConfig(run_dir, tree, run, options.command_line));
  // Trainer and generator work in turns, so that a run may have more ranks than this machine has cores.
  int64_t ranks = run.algorithm == config::Algorithm::kActors
                      ? 0
                      : std::max<int64_t>(1, run.cluster.trainer_ranks) + run.cluster.generators;
  for (const config::ActorGroupConfig& group : run.actors) ranks += group.ranks * group.cpus;
  const int cpu_slots = static_cast<int>(std::max<int64_t>(ranks, std::thread::hardware_concurrency()));
  Job job({.bin_dir = BinDir(),
           .run_dir = run_dir,
           .config_path = config_path,
           .cpu_slots = cpu_slots,
           .wait_on_loss = run.cluster.wait_on_controller_loss,
           .max_restarts = static_cast<int>(run.cluster.max_controller_restarts)});
  absl::Status status = WithProgramsExitCode(run, job.Run());
  if (!job.summary().empty()) {
    std::printf("%s%s", job.summary().c_str(), job.summary().back() == '\n' ? "" : "\n");
  }
  if (!job.checkpoint().empty()) std::printf("checkpoint: %s\n", job.checkpoint().c_str());
  if (!status.ok()) std::fprintf(stderr, "manta: logs are in %s\n", (run_dir / "logs").c_str());
  std::fflush(stdout);
  return status;
}

absl::Status RunAll(const RunOptions& options) {
  MANTA_ASSIGN_OR_RETURN(const config::Tree tree, config::LoadTree(options.config, options.overrides));
  MANTA_ASSIGN_OR_RETURN(const config::RunConfig run, config::ParseRunConfig(tree));
  if (options.must_be_eval && run.algorithm != config::Algorithm::kEval) {
    return UserError(absl::StrCat(options.config, ": has the tree '", config::AlgorithmName(run.algorithm),
                                  "', expected 'eval'; `manta run` runs it"));
  }
  if (options.print_config) {
    std::printf("%s", tree.ToYaml().c_str());
    return absl::OkStatus();
  }
  for (const std::string& warning : run.warnings) PrintWarning(warning);
  MANTA_RETURN_IF_ERROR(CheckRun(tree, run));
  if (!options.check_only && run.cluster.num_nodes > 1) {
    return tree.Error("cluster.num_nodes",
                      absl::StrCat(run.cluster.num_nodes, ", and `manta run` is one machine: start a cluster with `manta launch`, let "
                                   "the others `manta join` it, and `manta submit` the run to it; under Slurm: `sbatch --nodes=",
                                   run.cluster.num_nodes, " deploy/slurm/manta.sbatch`"));
  }
  if (!options.check_only) return RunJob(tree, run, options);
  std::printf("%s: a valid %s configuration; %s\n", options.config.c_str(), config::AlgorithmName(run.algorithm),
              run.algorithm == config::Algorithm::kActors ? "its programs are there"
                                                          : "model, tokenizer and datasets are readable");
  return absl::OkStatus();
}

}  // namespace

absl::Status WithProgramsExitCode(const config::RunConfig& run, absl::Status status) {
  v1::ErrorInfo info = GetErrorInfo(status);
  const bool ended_itself = info.origin() == v1::ORIGIN_WORKER_DIED && info.rank() >= 0 && info.exit_code() > 0;
  if (run.algorithm != config::Algorithm::kActors || !ended_itself) return status;
  info.set_origin(v1::ORIGIN_USER);
  return WithErrorInfo(std::move(status), info);
}

int Run(const RunOptions& options) { return PrintError(RunAll(options)); }

}  // namespace manta::cli

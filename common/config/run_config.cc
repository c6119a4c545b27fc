#include "common/config/run_config.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/config/reader.h"
#include "common/config/validate.h"

namespace manta::config {
namespace {

void ReadCheckpointing(Reader& r, RunConfig& run) {
  CheckpointingConfig& c = run.checkpointing;
  r.Read("checkpointing.enabled", c.enabled);
  if (run.algorithm == Algorithm::kEval) c.enabled = false;
  if (!c.enabled) return;
  r.Read("checkpointing.checkpoint_dir", c.checkpoint_dir);
  r.Read("checkpointing.metric_name", c.metric_name);
  r.Read("checkpointing.higher_is_better", c.higher_is_better);
  r.Read("checkpointing.keep_top_k", c.keep_top_k);
  r.Read("checkpointing.save_period", c.save_period);
  r.Read("checkpointing.save_optimizer", c.save_optimizer);
  r.Require(!c.metric_name || absl::StartsWith(*c.metric_name, "val:") || absl::StartsWith(*c.metric_name, "train:"),
            "checkpointing.metric_name", "expected val:NAME or train:NAME, as in val:accuracy");
}

void ReadLoggerAndCluster(Reader& r, RunConfig& run) {
  r.Read("logger.log_dir", run.logger.log_dir);
  r.Read("logger.tensorboard_enabled", run.logger.tensorboard_enabled);
  r.Read("logger.num_val_samples_to_print", run.logger.num_val_samples_to_print);
  ClusterConfig& c = run.cluster;
  std::string device = "auto";
  r.Read("cluster.device", device);
  c.device = device == "cpu" ? DeviceChoice::kCpu : device == "cuda" ? DeviceChoice::kCuda : DeviceChoice::kAuto;
  r.Read("cluster.trainer_ranks", c.trainer_ranks);
  r.Read("cluster.generators", c.generators);
  r.Read("cluster.reward_workers", c.reward_workers);
  r.Read("cluster.trainer_threads", c.trainer_threads);
  r.Read("cluster.generator_threads", c.generator_threads);
  r.Read("cluster.gpus_per_node", c.gpus_per_node);
  r.Read("cluster.num_nodes", c.num_nodes);
  r.Read("cluster.wait_for_nodes_s", c.wait_for_nodes_s);
  r.Read("cluster.progress_timeout_s", c.progress_timeout_s);
  std::string on_loss = "wait";
  r.Read("cluster.on_controller_loss", on_loss);
  c.wait_on_controller_loss = on_loss == "wait";
  r.Read("cluster.max_controller_restarts", c.max_controller_restarts);
  r.Read("cluster.max_worker_restarts", c.max_worker_restarts);
}

// A trainer over several nodes has the same number of ranks on each.
void CheckNodes(Reader& r, const RunConfig& run) {
  const int64_t nodes = run.cluster.num_nodes, ranks = run.cluster.trainer_ranks;
  if (nodes == 1 || ranks == 0 || (run.algorithm != Algorithm::kGrpo && run.algorithm != Algorithm::kSft)) return;
  constexpr char kKey[] = "cluster.trainer_ranks";
  r.Require(ranks < nodes || ranks % nodes == 0, kKey,
            absl::StrCat(ranks, " over ", nodes, " nodes (cluster.num_nodes): every node has the same number of ranks; expected ",
                         ranks / nodes * nodes, " or ", (ranks / nodes + 1) * nodes));
  r.Require(ranks >= nodes || run.algorithm != Algorithm::kSft, kKey,
            absl::StrCat(ranks, " would leave nodes without work: cluster.num_nodes is ", nodes, "; expected a multiple of that, or 0"));
}

// What holds between keys.
void CheckCombinations(Reader& r, RunConfig& run) {
  CheckNodes(r, run);
  if (run.algorithm == Algorithm::kGrpo) {
    const GrpoConfig& g = run.grpo;
    const int64_t samples = g.num_prompts_per_step * g.num_generations_per_prompt;
    r.Require(samples % run.policy.train_global_batch_size == 0, "policy.train_global_batch_size",
              absl::StrCat(run.policy.train_global_batch_size, " must divide grpo.num_prompts_per_step * "
                           "grpo.num_generations_per_prompt = ", samples));
    const bool reinforce = g.adv_estimator == "reinforce_plus_plus";
    r.Require(reinforce || !run.loss.use_kl_in_reward || run.loss.reference_policy_kl_penalty == 0,
              "loss_fn.use_kl_in_reward", "needs grpo.adv_estimator.name: reinforce_plus_plus");
    if (!reinforce && !g.minus_baseline) {
      constexpr char kKey[] = "grpo.adv_estimator.minus_baseline";
      run.warnings.push_back(absl::StrCat("without effect here: ", kKey, " (", r.tree().Where(kKey),
                                          "), which is for reinforce_plus_plus"));
    }
  }
}

}  // namespace

const char* AlgorithmName(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kGrpo: return "grpo";
    case Algorithm::kSft: return "sft";
    case Algorithm::kEval: return "eval";
    case Algorithm::kActors: return "actors";
  }
  return "";
}

uint64_t RunConfig::seed() const {
  switch (algorithm) {
    case Algorithm::kGrpo: return grpo.seed;
    case Algorithm::kSft: return sft.seed;
    case Algorithm::kEval: return eval.seed;
    case Algorithm::kActors: return 0;
  }
  return 0;
}

absl::StatusOr<RunConfig> ParseRunConfig(const Tree& tree) {
  RunConfig run;
  run.algorithm = tree.algorithm();
  MANTA_ASSIGN_OR_RETURN(run.warnings, ValidateKeys(tree));
  Reader reader(tree);
  if (run.algorithm != Algorithm::kActors) {
    ReadAlgorithm(reader, run);
    ReadPolicy(reader, run);
    ReadData(reader, run);
    ReadCheckpointing(reader, run);
  }
  ReadLoggerAndCluster(reader, run);
  ReadActors(reader, run);
  CheckCombinations(reader, run);
  MANTA_RETURN_IF_ERROR(reader.status());
  return run;
}

}  // namespace manta::config

// What a run is asked to do, typed: one struct for each tree of the configuration that this version implements.
//
// Field names and meanings are those of the YAML keys (docs/configuration.md lists them with their defaults); a null in
// the YAML is an empty optional. ParseRunConfig has checked every key, type, range and combination, so that code which
// receives a RunConfig need not check again. Plain values: copy them, read them from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/actor_config.h"

namespace manta::config {

class Tree;

// Which program runs: the one whose tree (`grpo:`, `sft:`, `eval:`) the configuration has. `actors:` may stand beside
// one of them, or alone: then the run is that of the actors.
enum class Algorithm { kGrpo, kSft, kEval, kActors };
const char* AlgorithmName(Algorithm algorithm);  // "grpo", "sft", "eval", "actors"

// grpo.reward_scaling: clamps to [source_min, source_max], then maps that range linearly to [target_min, target_max].
struct RewardScalingConfig {
  bool enabled = false;
  double source_min = 0, source_max = 1, target_min = 0, target_max = 1;
};

// grpo.reward_shaping: the penalty of over-long answers (DAPO), or a factor for truncated ones.
struct RewardShapingConfig {
  bool enabled = false;
  int64_t overlong_buffer_length = 128;
  double overlong_buffer_penalty = 1;
  int64_t max_response_length = 0;
  std::optional<double> stop_properly_penalty_coef;
};

struct GrpoConfig {
  int64_t num_prompts_per_step = 32;
  int64_t num_generations_per_prompt = 16;
  int64_t max_num_epochs = 1;
  int64_t max_num_steps = 1000000;
  bool normalize_rewards = true;            // of adv_estimator
  bool use_leave_one_out_baseline = true;   // of adv_estimator
  std::string adv_estimator = "grpo";       // or "reinforce_plus_plus"
  bool minus_baseline = true;               // reinforce_plus_plus: less the group's mean
  bool use_dynamic_sampling = false;        // train on prompts whose answers got different rewards only
  int64_t dynamic_sampling_max_gen_batches = 10;
  double batch_multiplier = 1;              // of the prompts of a generation batch
  int64_t val_period = 10;                  // steps; 0: never
  int64_t val_start_at = -1;                // first step at which val_period counts
  bool val_at_start = false;
  bool val_at_end = false;
  int64_t max_val_samples = 256;            // 0 (YAML: null): all
  int64_t val_batch_size = 256;
  int64_t val_num_generations_per_prompt = 1;
  std::optional<std::string> stop_at_validation_metric;  // as logged, without "validation/"
  std::optional<double> stop_at_validation_threshold;    // the run ends once it is reached
  bool overlong_filtering = false;
  std::optional<double> advantage_clip_low, advantage_clip_high;
  std::optional<double> seq_logprob_error_threshold;
  uint64_t seed = 42;
  RewardScalingConfig reward_scaling;
  RewardShapingConfig reward_shaping;

  // Prompts that are drawn and sampled at once.
  int64_t prompts_per_batch() const {
    return static_cast<int64_t>(static_cast<double>(num_prompts_per_step) * batch_multiplier);
  }
};

struct SftConfig {
  int64_t max_num_epochs = 1;
  int64_t max_num_steps = 60;               // -1: no bound but the epochs
  int64_t val_period = 10;
  int64_t val_batches = 8;                  // -1: the whole validation set
  int64_t val_global_batch_size = 32;
  int64_t val_micro_batch_size = 1;
  bool val_at_start = true;
  bool val_at_end = false;
  uint64_t seed = 42;
  bool only_unmask_final = false;           // train on the last assistant turn only
};

// eval: pass@k of a model on a dataset.
struct EvalConfig {
  std::string metric = "pass@k";
  int64_t num_tests_per_prompt = 1;
  int64_t k_value = 1;
  uint64_t seed = 42;
  std::optional<std::string> save_path;
};

// loss_fn: the clipped policy-gradient loss.
struct LossConfig {
  double reference_policy_kl_penalty = 0.01;
  std::string reference_policy_kl_type = "k3";                   // k1, k2, k3
  std::optional<double> kl_input_clamp_value = 20.0, kl_output_clamp_value = 10.0;
  double ratio_clip_min = 0.2, ratio_clip_max = 0.2;
  std::optional<double> ratio_clip_c;                            // > 1
  bool use_on_policy_kl_approximation = false;
  bool use_importance_sampling_correction = false;
  std::optional<std::string> truncated_importance_sampling_type;  // tis, icepop, seq-mask-tis
  std::optional<double> truncated_importance_sampling_ratio, truncated_importance_sampling_ratio_min;
  bool sequence_level_importance_ratios = false;
  bool token_level_loss = true;
  bool force_on_policy_ratio = false;
  bool use_kl_in_reward = false;
  bool use_cispo = false;
  bool disable_ppo_ratio = false;
  double positive_example_nll_weight = 0;
};

// policy.tokenizer
struct TokenizerConfig {
  std::string name;                                 // a folder with tokenizer.json
  std::optional<std::string> chat_template;         // empty: the model's own ("default"); else Jinja text, or a file's path
  std::string chat_template_kwargs_json = "{}";     // a JSON object
};

// policy.optimizer: AdamW.
struct OptimizerConfig {
  double lr = 5e-6, weight_decay = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

// One {name, kwargs} of policy.scheduler; the name is without its Python module.
struct ScheduleEntry {
  std::string name;                                 // LinearLR, ConstantLR, CosineAnnealingLR
  std::map<std::string, double> kwargs;
};
struct ScheduleConfig {
  std::vector<ScheduleEntry> entries;               // none: a constant learning rate
  std::vector<int64_t> milestones;                  // entries.size() - 1, ascending
};

// policy.sequence_packing or policy.dynamic_batching: how samples become microbatches. Where neither is enabled a
// microbatch holds train_micro_batch_size samples. There is never padding.
struct PackingConfig {
  bool enabled = false;
  std::string algorithm = "first_fit_decreasing";   // see controller/algorithms/packing.h
  int64_t train_mb_tokens = 0;                      // at most so many tokens a microbatch
  int64_t logprob_mb_tokens = 0;
};

// policy.generation, or the tree `generation` of an evaluation.
struct GenerationConfig {
  int64_t max_new_tokens = 512;
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;                                // 0: off (YAML: null or -1)
  double val_temperature = 1, val_top_p = 1;
  int64_t val_top_k = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;
  // Tuning of the generator; 0 is "choose for me".
  int64_t max_model_len = 0;                        // vllm_cfg.max_model_len
  double memory_fraction = 0.6;                     // vllm_cfg.gpu_memory_utilization
  std::string dtype;                                // vllm_cfg.precision
  int64_t block_size = 0, num_blocks = 0, max_num_seqs = 0, max_batched_tokens = 0;
  bool prefix_cache = true;
};

struct PolicyConfig {
  std::string model_name;                           // a folder with config.json and safetensors
  bool random_init = false;                         // policy.init: random - config.json alone, weights from the seed
  std::string hf_config_overrides_json = "{}";
  TokenizerConfig tokenizer;
  int64_t train_global_batch_size = 512;
  int64_t train_micro_batch_size = 4;
  int64_t logprob_batch_size = 4;
  int64_t max_total_sequence_length = 512;
  std::string precision = "bfloat16";               // float32, bfloat16, float16
  std::optional<int64_t> logprob_chunk_size;        // rows of logits held at once
  double max_grad_norm = 1.0;                       // 0 (YAML: null or 0): no clipping
  bool activation_checkpointing = false;            // dtensor_cfg.activation_checkpointing
  OptimizerConfig optimizer;
  ScheduleConfig scheduler;
  PackingConfig sequence_packing;
  PackingConfig dynamic_batching;
  GenerationConfig generation;
};

// One dataset: data.train or data.validation over data.default, or the flat form directly under `data`.
struct DatasetConfig {
  std::string dataset_name;                         // openai_format, ResponseDataset, gsm8k
  std::string data_path;                            // a JSONL file
  std::string chat_key = "messages";                // openai_format
  std::string input_key = "input", output_key = "output";
  std::optional<std::string> system_key;            // openai_format: the row's field with the system message
  std::optional<std::string> system_prompt;         // text (from system_prompt or system_prompt_file)
  std::optional<std::string> prompt_template;       // text of prompt_file; "{}" stands for the problem
  std::string env_name = "math";
  int64_t repeat = 1;
  double split_validation_size = 0;                 // part of the training set that is held out for validation
  std::optional<uint64_t> split_seed;
  std::string where;                                // file:line of the tree, for errors about its files
};

struct DataConfig {
  int64_t max_input_seq_length = 512;
  bool shuffle = true;
  bool add_bos = true, add_eos = true, add_generation_prompt = false;  // SFT
  DatasetConfig train;
  std::optional<DatasetConfig> validation;
};

// env.<name>: who scores samples whose dataset has this env_name.
struct EnvConfig {
  std::string name;
  std::string verifier;                             // own key; by default the environment's name
  int64_t num_workers = 8;                          // threads that score
  int64_t deadline_ms = 10000;                      // own key: of one sample
  std::string options_json = "{}";                  // the whole subtree, for RewardService
};

struct CheckpointingConfig {
  bool enabled = true;
  std::string checkpoint_dir = "results/grpo";
  std::optional<std::string> metric_name = "val:accuracy";  // "val:..." or "train:..."
  bool higher_is_better = true;
  std::optional<int64_t> keep_top_k = 3;            // empty: keep all
  int64_t save_period = 10;
  bool save_optimizer = true;
};

struct LoggerConfig {
  std::string log_dir = "logs";
  bool tensorboard_enabled = false;
  int64_t num_val_samples_to_print = 0;
};

enum class DeviceChoice { kAuto, kCpu, kCuda };

struct ClusterConfig {
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t trainer_ranks = 0;                        // 0: one a GPU, or one on a CPU
  int64_t generators = 1;
  int64_t reward_workers = 1;
  int64_t trainer_threads = 0, generator_threads = 0;  // CPU arithmetic threads a process; 0: choose
  int64_t num_nodes = 1;                 // that the run waits for, and that its trainer's ranks lie on
  std::optional<int64_t> gpus_per_node;  // of num_nodes above 1: the trainer's; none: as many as the nodes have
  int64_t wait_for_nodes_s = 600;
  double progress_timeout_s = 1800;  // 0: none
  bool wait_on_controller_loss = true;
  int64_t max_controller_restarts = 3;  // within a minute
  int64_t max_worker_restarts = 0;      // without coming further
};

struct RunConfig {
  Algorithm algorithm = Algorithm::kGrpo;
  GrpoConfig grpo;
  SftConfig sft;
  EvalConfig eval;
  LossConfig loss;
  PolicyConfig policy;                              // for an evaluation: model, tokenizer and generation of its trees
  DataConfig data;
  std::map<std::string, EnvConfig> env;
  CheckpointingConfig checkpointing;
  LoggerConfig logger;
  ClusterConfig cluster;
  std::vector<ActorGroupConfig> actors;             // in the order of the file
  std::vector<std::string> warnings;                // one line each: keys that are accepted and have no effect here

  uint64_t seed() const;                            // of the algorithm that runs
};

// The typed view of a loaded configuration (load.h). INVALID_ARGUMENT with file:line and key for the first thing wrong.
[[nodiscard]] absl::StatusOr<RunConfig> ParseRunConfig(const Tree& tree);

}  // namespace manta::config

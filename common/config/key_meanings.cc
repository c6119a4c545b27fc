// What each implemented key does, in a line.
#include <map>

#include "common/config/key_docs.h"

namespace manta::config {
namespace {

using Meanings = std::map<std::string, std::string>;

Meanings AlgorithmMeanings() {
  return {
      {"grpo.num_prompts_per_step", "prompts of a step"},
      {"grpo.num_generations_per_prompt", "samples of a prompt: the group over which advantages are taken"},
      {"grpo.max_num_epochs", "passes over the training set; the run ends here or at `max_num_steps`"},
      {"grpo.max_num_steps", "steps of the run"},
      {"grpo.normalize_rewards", "divide advantages by the group's standard deviation"},
      {"grpo.use_leave_one_out_baseline", "a sample's baseline is the mean of the others of its group"},
      {"grpo.val_period", "validate every so many steps; 0: never"},
      {"grpo.val_start_at", "the first step at which `val_period` counts; -1: at once"},
      {"grpo.val_at_start", "validate before the first step"},
      {"grpo.val_at_end", "validate after the last step"},
      {"grpo.max_val_samples", "at most so many problems of the validation set; null: all"},
      {"grpo.val_batch_size", "problems that are generated for at a time"},
      {"grpo.val_num_generations_per_prompt", "samples of a validation problem, over which accuracy is a mean"},
      {"grpo.overlong_filtering", "no loss on samples that were cut off at the longest length"},
      {"grpo.stop_at_validation_metric", "the run ends, saved, once this measure of a validation reaches the threshold"},
      {"grpo.stop_at_validation_threshold", "of `grpo.stop_at_validation_metric`"},
      {"grpo.advantage_clip_low", "advantages are not below this"},
      {"grpo.advantage_clip_high", "advantages are not above this"},
      {"grpo.seq_logprob_error_threshold",
       "no loss on sequences where trainer and generator differ by more (mean over tokens of the exponential of the "
       "absolute difference)"},
      {"grpo.seed", "of sampling, shuffling and random weights"},
      {"grpo.adv_estimator.name", "how advantages are taken"},
      {"grpo.adv_estimator.minus_baseline", "reinforce_plus_plus: take the mean of the group off its rewards"},
      {"grpo.use_dynamic_sampling",
       "train only on prompts whose answers got different rewards, and sample further batches of prompts until there are "
       "`num_prompts_per_step` of them"},
      {"grpo.dynamic_sampling_max_gen_batches", "an error where so many batches do not suffice for a step"},
      {"grpo.batch_multiplier", "prompts of such a batch, in multiples of `num_prompts_per_step`"},
      {"grpo.adv_estimator.normalize_rewards", "as `grpo.normalize_rewards`, which it overrides"},
      {"grpo.adv_estimator.use_leave_one_out_baseline", "as `grpo.use_leave_one_out_baseline`, which it overrides"},
      {"grpo.reward_shaping.enabled",
       "lower the reward of answers that come close to the longest length, or were cut off"},
      {"grpo.reward_shaping.overlong_buffer_length",
       "tokens before `max_response_length` over which the penalty grows"},
      {"grpo.reward_shaping.overlong_buffer_penalty", "the penalty at `max_response_length`"},
      {"grpo.reward_shaping.max_response_length", "in tokens"},
      {"grpo.reward_shaping.stop_properly_penalty_coef",
       "instead: the factor for the reward of an answer that was cut off"},
      {"grpo.reward_scaling.enabled",
       "map rewards from the source range, to which they are clamped, to the target range"},
      {"sft.max_num_epochs", "passes over the training set; the run ends here or at `max_num_steps`"},
      {"sft.max_num_steps", "steps of the run; -1 or null: no bound but the epochs"},
      {"sft.val_period", "validate every so many steps; 0: never"},
      {"sft.val_batches", "batches of a validation; -1: the whole set"},
      {"sft.val_global_batch_size", "conversations of a validation batch"},
      {"sft.val_micro_batch_size", "conversations of a validation microbatch, where there is no packing"},
      {"sft.val_at_start", "validate before the first step"},
      {"sft.val_at_end", "validate after the last step"},
      {"sft.seed", "of shuffling and random weights"},
      {"sft.only_unmask_final", "train on the last turn of the assistant only"},
      {"eval.metric", "what is measured"},
      {"eval.num_tests_per_prompt", "samples of a problem; pass@k is estimated without bias from them"},
      {"eval.seed", "of sampling"},
      {"eval.k_value", "the k of pass@k, at most `num_tests_per_prompt`"},
      {"eval.save_path", "a JSONL file for every sample with its answer and reward"},
      {"loss_fn.reference_policy_kl_penalty",
       "weight of the divergence from the model at the start; 0: no reference is kept"},
      {"loss_fn.reference_policy_kl_type", "the estimator of the divergence"},
      {"loss_fn.kl_input_clamp_value", "bound of the log-ratio that goes into it"},
      {"loss_fn.kl_output_clamp_value", "bound of the estimate of a token"},
      {"loss_fn.ratio_clip_min", "the ratio is clipped below at 1 minus this"},
      {"loss_fn.ratio_clip_max", "the ratio is clipped above at 1 plus this"},
      {"loss_fn.ratio_clip_c", "dual clipping: bound of the loss where the advantage is negative; above 1"},
      {"loss_fn.use_on_policy_kl_approximation",
       "weigh the divergence by the ratio of the current policy to the generator"},
      {"loss_fn.use_importance_sampling_correction", "weigh tokens by the ratio of trainer to generator"},
      {"loss_fn.truncated_importance_sampling_type", "how that weight is bounded"},
      {"loss_fn.truncated_importance_sampling_ratio", "its upper bound"},
      {"loss_fn.truncated_importance_sampling_ratio_min", "its lower bound"},
      {"loss_fn.sequence_level_importance_ratios", "one ratio a sequence: the exponential of the mean over its tokens"},
      {"loss_fn.token_level_loss", "mean over all tokens; false: over each sequence, then over sequences"},
      {"loss_fn.force_on_policy_ratio", "take the ratio as 1, with its gradient"},
      {"loss_fn.use_kl_in_reward", "take the divergence off the reward instead of adding it to the loss"},
      {"loss_fn.use_cispo", "clip the ratio as a constant weight of the log-probability"},
      {"loss_fn.disable_ppo_ratio", "no ratio: the plain policy gradient"},
      {"loss_fn.positive_example_nll_weight", "weight of the likelihood of samples with positive advantage"},
  };
}

Meanings PolicyMeanings() {
  return {
      {"policy.model_name", "the model's folder: config.json and safetensors"},
      {"policy.init", "`random`: config.json alone, weights from the seed"},
      {"policy.hf_config_overrides", "fields that replace those of config.json"},
      {"policy.tokenizer.name", "the folder with tokenizer.json"},
      {"policy.tokenizer.chat_template", "Jinja text or a file's path; null or `default`: the model's own"},
      {"policy.tokenizer.chat_template_kwargs", "variables for the template"},
      {"policy.train_global_batch_size", "samples of an optimiser step"},
      {"policy.train_micro_batch_size", "samples of a microbatch, where there is neither packing nor dynamic batching"},
      {"policy.logprob_batch_size", "the same for log-probabilities"},
      {"policy.max_total_sequence_length", "the longest sequence, prompt and answer, in tokens"},
      {"policy.precision", "of weights and activations; sums, normalisation and the optimiser are in float32"},
      {"policy.logprob_chunk_size", "rows of logits held at once; null: chosen"},
      {"policy.max_grad_norm", "the gradient's norm is clipped to this; null or 0: not at all"},
      {"policy.activation_checkpointing_enabled", "compute a layer again in the backward pass instead of keeping it"},
      {"policy.dtensor_cfg.activation_checkpointing", "the same"},
      {"policy.optimizer.kwargs.lr", "learning rate, before the scheduler's factor"},
      {"policy.optimizer.kwargs.betas", "two numbers from 0 to 1"},
      {"policy.scheduler",
       "a list of `{name, kwargs}` (LinearLR, ConstantLR, CosineAnnealingLR), its last entry `{milestones: [...]}`; "
       "or one such entry; null: constant"},
      {"policy.dynamic_batching.enabled", "the same as sequence packing here, for there is never padding"},
      {"policy.sequence_packing.enabled", "microbatches by tokens, sequences end to end"},
      {"policy.sequence_packing.algorithm", "which sequences of a rank share a microbatch, where those of one prompt cannot be together"},
      {"policy.sequence_packing.train_mb_tokens", "at most so many tokens a microbatch"},
      {"policy.sequence_packing.logprob_mb_tokens", "the same for log-probabilities"},
      {"policy.dynamic_batching.train_mb_tokens", "at most so many tokens a microbatch"},
      {"policy.dynamic_batching.logprob_mb_tokens", "the same for log-probabilities"},
      {"policy.generation.max_new_tokens", "at most so many tokens an answer"},
      {"policy.generation.temperature", "0: always the most likely token"},
      {"policy.generation.top_p", "draw from the most likely that together have this probability"},
      {"policy.generation.top_k", "draw from the k most likely; null or -1: from all"},
      {"policy.generation.min_p", "leave out what is less likely than this part of the likeliest"},
      {"policy.generation.val_temperature", "in validation"},
      {"policy.generation.val_top_p", "in validation"},
      {"policy.generation.val_top_k", "in validation"},
      {"policy.generation.stop_token_ids", "end an answer at these, as well as at the model's own"},
      {"policy.generation.stop_strings", "end an answer where one of these comes up"},
      {"policy.generation.ignore_eos", "go on past the model's end tokens"},
      {"policy.generation.block_size", "tokens of a block of the cache; 0: chosen"},
      {"policy.generation.num_blocks", "blocks of the cache; 0: chosen"},
      {"policy.generation.max_num_seqs", "sequences that are written at a time; 0: chosen"},
      {"policy.generation.max_batched_tokens", "tokens of one pass of the model; 0: chosen"},
      {"policy.generation.prefix_cache", "keep the cache of prompts that begin alike"},
      {"policy.generation.vllm_cfg.precision", "of the generator's weights and activations"},
      {"policy.generation.vllm_cfg.gpu_memory_utilization", "part of a GPU's memory that the generator may take"},
      {"policy.generation.vllm_cfg.max_model_len", "the longest sequence that it writes"},
      {"generation.model_name", "the model's folder: config.json and safetensors"},
      {"tokenizer.name", "the folder with tokenizer.json"},
      {"tokenizer.chat_template", "Jinja text or a file's path; null or `default`: the model's own"},
      {"tokenizer.chat_template_kwargs", "variables for the template"},
  };
}

Meanings RunMeanings() {
  return {
      {"data.max_input_seq_length",
       "in tokens; prompts and conversations that are longer (or that do not fit into `policy.max_total_sequence_length`, "
       "prompts with a token of their answer) are left out (`train/num_overlong_prompts`, "
       "`train/num_overlong_masked`)"},
      {"data.shuffle", "another order each epoch, from the seed"},
      {"data.add_bos", "SFT: a conversation begins with the tokenizer's BOS, where it has one"},
      {"data.add_eos", "SFT: and ends with its EOS"},
      {"data.add_generation_prompt", "SFT: the template's opening of an answer before the assistant's turn"},
      {"data.train.dataset_name", "`openai_format` (conversations), `ResponseDataset` (problem and answer) or `gsm8k`"},
      {"data.train.data_path", "a JSONL file"},
      {"data.train.train_data_path", "the same, in the flat form"},
      {"data.train.val_data_path", "the validation set, in the flat form"},
      {"data.train.chat_key", "openai_format: the field with the messages; by default `messages`"},
      {"data.train.system_key", "openai_format: the field with a system message"},
      {"data.train.system_prompt", "a system message for every row"},
      {"data.train.system_prompt_file", "the same from a file"},
      {"data.train.prompt_file", "a text with `{}` for the problem"},
      {"data.train.input_key", "the field with the problem; by default `input`"},
      {"data.train.output_key", "the field with the expected answer; by default `output`"},
      {"data.train.env_name", "who scores samples: a tree of `env`; by default `math`"},
      {"data.train.repeat", "times that the set is read in an epoch"},
      {"data.train.split_validation_size",
       "part of the training set that is held out for validation, where there is no other"},
      {"data.train.seed", "of that split"},
      {"data.train.processor", "accepted; what it would choose follows from `dataset_name`"},
      {"env.*.num_workers", "threads that score"},
      {"env.*.verifier", "`math` or `format`; by default the environment's name"},
      {"env.*.deadline_ms", "for one sample"},
      {"env.*.options", "for the verifier"},
      {"logger.log_dir", "runs write to `log_dir/exp_NNN`"},
      {"logger.num_val_samples_to_print", "samples shown with each validation"},
      {"logger.tensorboard_enabled", "write events to `tb/` in the run's folder"},
      {"checkpointing.checkpoint_dir", "where `step_N` folders are; a run goes on from the newest that it finds there"},
      {"checkpointing.metric_name", "`val:NAME` or `train:NAME`: what is compared for `keep_top_k`; null: the step"},
      {"checkpointing.higher_is_better", "of that metric"},
      {"checkpointing.keep_top_k", "checkpoints that are kept, the newest always among them; null: all"},
      {"checkpointing.save_period", "save every so many steps, and after the last"},
      {"checkpointing.save_optimizer", "without it a run cannot go on from the checkpoint"},
      {"cluster.device", "`auto`: CUDA where a GPU is found"},
      {"cluster.trainer_ranks", "processes that train, over all nodes; 0: one a GPU, or, on CPU, one a node"},
      {"cluster.generators", "processes that generate"},
      {"cluster.reward_workers", "processes that score"},
      {"cluster.trainer_threads", "CPU threads of a trainer rank; 0: chosen"},
      {"cluster.generator_threads", "CPU threads of a generator; 0: chosen"},
      {"cluster.progress_timeout_s",
       "a worker with work that makes no progress for so long (no microbatch, no token, no call done) hangs: the stacks of "
       "its group go into their logs and the run ends with the reason; 0: never"},
      {"cluster.on_controller_loss",
       "`wait`: workers outlive a controller or node agent that is killed, `manta run` starts it again, and the run goes on; "
       "`stop`: the run ends"},
      {"cluster.max_controller_restarts", "how often within a minute that is done, for each of the two"},
      {"cluster.max_worker_restarts",
       "how often the run goes on by itself after a worker has died, counted since it last came further; 0: it ends"},
      {"cluster.num_nodes", "machines that the run waits for; the trainer has the same number of ranks on each. Above 1: for `manta submit`"},
      {"cluster.wait_for_nodes_s", "how long it waits for them, in seconds"},
      {"cluster.gpus_per_node",
       "with `num_nodes` above 1 and `trainer_ranks` 0: the trainer's ranks on each node; null: as many as the nodes have GPUs"},
  };
}

Meanings ActorMeanings() {
  return {
      {"actors.*.command", "the program and its arguments; a program without a `/` is looked for in PATH"},
      {"actors.*.args", "further arguments"},
      {"actors.*.working_dir", "its working folder; null: the one that the command was given in"},
      {"actors.*.env", "variables that are set"},
      {"actors.*.env_allow",
       "variables of the node agent's that are passed on beside the usual ones: `NAME` or `PREFIX*`; one that sounds "
       "like a secret by its full name only"},
      {"actors.*.plain", "any program: reports nothing, is ready once started, and done when it exits with 0"},
      {"actors.*.ranks", "processes, placed together or not at all"},
      {"actors.*.cpus", "CPU slots of a rank"},
      {"actors.*.gpus", "GPUs of a rank"},
      {"actors.*.gpu_slot", "the rank shares its GPUs with those of other slots of the job"},
      {"actors.*.memory", "of a rank, counted at its placement and enforced: `512MiB`, `2GiB`"},
      {"actors.*.labels", "on nodes with these labels only"},
      {"actors.*.avoid", "nodes to stay away from"},
      {"actors.*.strategy", "how ranks are laid over nodes"},
      {"actors.*.segment", "so many consecutive ranks lie in one NVLink domain; 0: anywhere"},
      {"actors.*.placement_timeout_s", "how long room is waited for; the impossible fails at once"},
      {"actors.*.start_timeout_s", "from the start of a process until it is ready"},
      {"actors.*.progress_timeout_s",
       "calls run and no step is reported for so long: stacks are logged, then the restart policy; 0: never"},
      {"actors.*.restart.policy", "when a rank ends: the job fails, all ranks are started again, or that rank alone"},
      {"actors.*.restart.max_restarts", "then the job fails; -1: any number"},
      {"actors.*.restart.backoff_s", "before the first restart, doubled for each further one"},
      {"actors.*.restart.backoff_max_s", "and no more than this"},
      {"actors.*.restart.reset_after_s", "ready for so long: restarts are counted from 0 again"},
      {"actors.*.name", "what clients find it by, unique in the cluster; null: `JOB/GROUP`, `GROUP` under `manta run`"},
      {"actors.*.detached", "stays when its job ends"},
      {"actors.*.ports", "free ports for a rank, in `MANTA_PORTS`"},
      {"actors.*.torchrun", "sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the like"},
      {"actors.*.prefork", "fork ranks from a loaded program (C++ actors)"},
      {"actors.*.limits.file_size", "of any file that it writes"},
      {"actors.*.limits.open_files", "0: the agent's own limit"},
  };
}

const Meanings& AllMeanings() {
  static const Meanings& all = *[] {
    auto* meanings = new Meanings(AlgorithmMeanings());
    meanings->merge(PolicyMeanings());
    meanings->merge(RunMeanings());
    meanings->merge(ActorMeanings());
    return meanings;
  }();
  return all;
}

std::string Exact(const std::string& path) {
  const auto it = AllMeanings().find(path);
  return it == AllMeanings().end() ? "" : it->second;
}

}  // namespace

std::string KeyMeaning(const std::string& path) {
  if (std::string exact = Exact(path); !exact.empty()) return exact;
  for (const std::string tree : {"data.validation.", "data.default.", "data."}) {
    if (path.rfind(tree, 0) == 0) return Exact("data.train." + path.substr(tree.size()));
  }
  return path.rfind("generation.", 0) == 0 ? Exact("policy." + path) : "";
}

}  // namespace manta::config

// Keys of the tree policy, but for policy.generation (keys_generation.cc).
#include "common/config/keys.h"

namespace manta::config {
namespace {

void AddModelKeys(Keys& keys) {
  for (Key& key : Keys{
           Text("policy.model_name").Path(),
           Text("policy.init", "pretrained").OneOf("pretrained|random"),
           AnyMap("policy.hf_config_overrides", "{}").Null(),
           Text("policy.tokenizer.name", "${policy.model_name}").Path(),
           Text("policy.tokenizer.chat_template", "null").Null(),
           AnyMap("policy.tokenizer.chat_template_kwargs", "null").Null(),
           Ignored("policy.tokenizer.use_fastokens", "false"),
           Int("policy.train_global_batch_size", "512").Sft("32").AtLeast(1).AtMost(kMostSamples),
           Int("policy.train_micro_batch_size", "4").Sft("1").AtLeast(1).AtMost(kMostSamples),
           Ignored("policy.generation_batch_size", "32"),  // the generator batches as its cache allows
           Int("policy.logprob_batch_size", "${policy.train_micro_batch_size}").AtLeast(1).AtMost(kMostSamples),
           Int("policy.max_total_sequence_length", "512").Sft("1024").AtLeast(1).AtMost(kMostTokens),
           Text("policy.precision", "bfloat16").OneOf("float32|bfloat16|float16"),
           Int("policy.logprob_chunk_size", "null").AtLeast(1).AtMost(kMostTokens).Null(),
           Number("policy.max_grad_norm", "1.0").AtLeast(0).Null(),
           Ignored("policy.offload_optimizer_for_logprob", "false"),
           Quiet("policy.make_sequence_length_divisible_by"),  // there is no padding
           Pending("policy.reward_model_cfg.enabled", "false"),
           Quiet("policy.reward_model_cfg.reward_model_type"),
           Pending("policy.draft.enabled", "false"),
           Quiet("policy.draft.**"),
           Bool("policy.activation_checkpointing_enabled", "false"),
       }) {
    keys.push_back(std::move(key));
  }
}

void AddParallelismKeys(Keys& keys) {
  for (Key& key : Keys{
           Quiet("policy.dtensor_cfg._v2"),
           Quiet("policy.dtensor_cfg.enabled"),
           Pending("policy.dtensor_cfg.cpu_offload", "false"),
           Pending("policy.dtensor_cfg.sequence_parallel", "false"),
           Bool("policy.dtensor_cfg.activation_checkpointing", "false"),
           Pending("policy.dtensor_cfg.tensor_parallel_size", "1"),
           Pending("policy.dtensor_cfg.context_parallel_size", "1"),
           Pending("policy.dtensor_cfg.expert_parallel_size", "1"),
           Pending("policy.dtensor_cfg.dp_replicate_size", "1"),
           Pending("policy.dtensor_cfg.custom_parallel_plan", "null"),
           Ignored("policy.dtensor_cfg.automodel_kwargs", "{}"),
           Ignored("policy.dtensor_cfg.automodel_kwargs.**", "null"),
           Ignored("policy.dtensor_cfg.env_vars", "{}"),
           Ignored("policy.dtensor_cfg.env_vars.**", "null"),
           Ignored("policy.dtensor_cfg.clear_cache_every_n_steps", "null"),
           Pending("policy.dtensor_cfg.lora_cfg.enabled", "false"),
           Quiet("policy.dtensor_cfg.lora_cfg.**"),
           Pending("policy.megatron_cfg.enabled", "false"),
           Quiet("policy.megatron_cfg.**"),
       }) {
    keys.push_back(std::move(key));
  }
}

void AddOptimizerKeys(Keys& keys) {
  for (Key& key : Keys{
           Text("policy.optimizer.name", "torch.optim.AdamW").OneOf("torch.optim.AdamW|AdamW"),
           Number("policy.optimizer.kwargs.lr", "5e-06").AtLeast(0),
           Number("policy.optimizer.kwargs.weight_decay", "0.01").Sft("0.1").AtLeast(0),
           Any("policy.optimizer.kwargs.betas", "[0.9, 0.999]").Sft("[0.9, 0.98]"),  // read_policy.cc checks it
           Number("policy.optimizer.kwargs.eps", "1e-8").Sft("1e-5").AtLeast(0),
           Ignored("policy.optimizer.kwargs.foreach", "false"),
           Ignored("policy.optimizer.kwargs.fused", "false"),
           Any("policy.scheduler").Null(),  // read_scheduler.cc checks it
       }) {
    keys.push_back(std::move(key));
  }
}

void AddBatchingKeys(Keys& keys) {
  for (Key& key : Keys{
           Bool("policy.dynamic_batching.enabled", "false"),
           Int("policy.dynamic_batching.train_mb_tokens",
               "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}").AtLeast(1),
           Int("policy.dynamic_batching.logprob_mb_tokens",
               "${mul:${policy.max_total_sequence_length}, ${policy.logprob_batch_size}}").AtLeast(1),
           Quiet("policy.dynamic_batching.sequence_length_round"),
           Bool("policy.sequence_packing.enabled", "true").Sft("false"),
           Int("policy.sequence_packing.train_mb_tokens",
               "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}").AtLeast(1),
           Int("policy.sequence_packing.logprob_mb_tokens",
               "${mul:${policy.max_total_sequence_length}, ${policy.logprob_batch_size}}").AtLeast(1),
           Text("policy.sequence_packing.algorithm", "modified_first_fit_decreasing")
               .OneOf("concatenative|first_fit_decreasing|first_fit_shuffle|modified_first_fit_decreasing"),
           Ignored("policy.sequence_packing.microbatch_order", "packer"),
           Quiet("policy.sequence_packing.sequence_length_round"),
       }) {
    keys.push_back(std::move(key));
  }
}

}  // namespace

void AddPolicyKeys(Keys& keys) {
  AddModelKeys(keys);
  AddParallelismKeys(keys);
  AddOptimizerKeys(keys);
  AddBatchingKeys(keys);
}

}  // namespace manta::config

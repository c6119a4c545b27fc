// Keys of policy.generation, of the tree generation (an evaluation's) and of the tree tokenizer.
#include "common/config/keys.h"

namespace manta::config {
namespace {

void AddUnder(const std::string& tree, bool eval, Keys& keys) {
  const auto p = [&tree](const char* name) { return tree + "." + name; };
  const std::string length = eval ? "${generation.vllm_cfg.max_model_len}" : "${policy.max_total_sequence_length}";
  for (Key& key : Keys{
           Int(p("max_new_tokens"), length).AtLeast(1).AtMost(kMostTokens),
           Number(p("temperature"), eval ? "0.0" : "1.0").AtLeast(0).AtMost(kMostTemperature),
           Number(p("top_p"), "1.0").AtLeast(0).AtMost(1),
           Int(p("top_k"), eval ? "-1" : "null").AtLeast(-1).AtMost(kMostTokens).Null(),
           Number(p("min_p"), "0.0").AtLeast(0).AtMost(1),
           Number(p("val_temperature"), "${.temperature}").AtLeast(0).AtMost(kMostTemperature),
           Number(p("val_top_p"), "${.top_p}").AtLeast(0).AtMost(1),
           Int(p("val_top_k"), "${.top_k}").AtLeast(-1).AtMost(kMostTokens).Null(),
           IntList(p("stop_token_ids"), "null").Null(),
           TextList(p("stop_strings"), "null").Null(),
           Bool(p("ignore_eos"), "false"),
           Int(p("block_size"), "0").AtLeast(0).AtMost(1024),
           Int(p("num_blocks"), "0").AtLeast(0).AtMost(std::numeric_limits<int32_t>::max()),
           Int(p("max_num_seqs"), "0").AtLeast(0).AtMost(1 << 16),
           Int(p("max_batched_tokens"), "0").AtLeast(0).AtMost(1 << 20),
           Bool(p("prefix_cache"), "true"),
           Text(p("vllm_cfg.precision"), eval ? "bfloat16" : "${policy.precision}").OneOf("float32|bfloat16|float16|auto"),
           Number(p("vllm_cfg.gpu_memory_utilization"), eval ? "0.9" : "0.6").AtLeast(0.01).AtMost(1),
           Int(p("vllm_cfg.max_model_len"), eval ? "2048" : length).AtLeast(1).AtMost(kMostTokens),
           Pending(p("vllm_cfg.tensor_parallel_size"), "1"),
           Pending(p("vllm_cfg.pipeline_parallel_size"), "1"),
           Pending(p("vllm_cfg.expert_parallel_size"), "1"),
           Pending(p("vllm_cfg.kv_cache_dtype"), "auto"),
           Ignored(p("vllm_cfg.async_engine"), "false"),
           Ignored(p("vllm_cfg.logprobs_mode"), "processed_logprobs"),
           Ignored(p("vllm_cfg.enforce_eager"), "false"),
           Ignored(p("vllm_cfg.use_tqdm"), "true"),
           Ignored(p("vllm_cfg.use_deep_gemm"), "false"),
           Ignored(p("vllm_cfg.num_last_layers_in_bf16"), "0"),
           Ignored(p("vllm_cfg.num_first_layers_in_bf16"), "0"),
           Ignored(p("vllm_cfg.enable_vllm_metrics_logger"), "true"),
           Ignored(p("vllm_cfg.vllm_metrics_logger_interval"), "0.5"),
           Ignored(p("vllm_cfg.http_refit_api_key_env_var"), "null"),
           Ignored(p("vllm_cfg.reset_encoder_cache_after_weight_update"), "false"),
           Ignored(p("vllm_cfg.http_refit_server_port"), "null"),
           Ignored(p("vllm_cfg.zmq_refit_server_port"), "null"),
           Ignored(p("vllm_cfg.distributed_executor_backend"), "null"),
           Ignored(p("vllm_kwargs"), "{}"),
           Ignored(p("vllm_kwargs.**"), "null"),
           Ignored(p("backend"), "vllm"),
           Ignored(p("port_range_low"), "3000"),
           Ignored(p("port_range_high"), "4999"),
           Ignored(p("refit_transport"), "null"),
           Ignored(p("real_quant_export_cpu_offload"), "true"),
           Quiet(p("refit_cfg.**")),
           Quiet(p("mcore_generation_config.**")),
           Ignored(p("colocated.enabled"), "true"),
           Quiet(p("colocated.resources.gpus_per_node")),
           Quiet(p("colocated.resources.num_nodes")),
       }) {
    keys.push_back(std::move(key));
  }
}

}  // namespace

void AddGenerationKeys(Keys& keys) {
  AddUnder("policy.generation", false, keys);
  AddUnder("generation", true, keys);
  keys.push_back(Text("generation.model_name").Path());
  keys.push_back(Ignored("generation.num_prompts_per_step", "-1"));
  keys.push_back(Text("tokenizer.name", "${generation.model_name}").Path());
  keys.push_back(Text("tokenizer.chat_template", "default").Null());
  keys.push_back(AnyMap("tokenizer.chat_template_kwargs", "null").Null());
}

}  // namespace manta::config

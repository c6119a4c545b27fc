// Keys of the trees data and env.
#include "common/config/keys.h"

namespace manta::config {
namespace {

// What describes one dataset: under data.train, data.validation and data.default, or directly under data.
void AddDatasetKeys(const std::string& tree, Keys& keys) {
  const auto p = [&tree](const char* name) { return tree + "." + name; };
  for (Key& key : Keys{
           Text(p("dataset_name")),
           Text(p("data_path")).Null().Path(),
           Text(p("train_data_path")).Null().Path(),
           Text(p("val_data_path")).Null().Path(),
           Text(p("chat_key")).Null(),
           Text(p("system_key")).Null(),
           Text(p("system_prompt")).Null(),
           Text(p("system_prompt_file")).Null().Path(),
           Text(p("prompt_file")).Null().Path(),
           Text(p("input_key")).Null(),
           Text(p("output_key")).Null(),
           Text(p("env_name")).Null(),
           Int(p("repeat")).AtLeast(1).AtMost(1 << 20),
           Number(p("split_validation_size")).AtLeast(0).AtMost(0.9),
           Int(p("seed")).AtLeast(0),
           Ignored(p("split"), "null"),
           Ignored(p("subset"), "null"),
           Text(p("processor")).OneOf("math_hf_data_processor|sft_processor|math_data_processor"),
           Pending(p("tool_key"), "null"),
           Pending(p("use_preserving_dataset"), "false"),
       }) {
    keys.push_back(std::move(key));
  }
}

}  // namespace

void AddDataKeys(Keys& keys) {
  keys.push_back(Int("data.max_input_seq_length", "${policy.max_total_sequence_length}")
                     .Eval("${generation.vllm_cfg.max_model_len}").AtLeast(1).AtMost(kMostTokens));
  keys.push_back(Bool("data.shuffle", "true").Eval("false"));
  keys.push_back(Bool("data.add_bos", "true"));
  keys.push_back(Bool("data.add_eos", "true"));
  keys.push_back(Bool("data.add_generation_prompt", "false"));
  keys.push_back(Ignored("data.num_workers", "1"));
  keys.push_back(Pending("data.use_multiple_dataloader", "false"));
  for (const char* tree : {"data", "data.train", "data.validation", "data.default"}) AddDatasetKeys(tree, keys);
  for (Key& key : Keys{
           Int("env.*.num_workers", "8").AtLeast(1).AtMost(1 << 20),
           Ignored("env.*.math_verify_impl", "hf_math_verify"),
           Text("env.*.verifier"),
           Int("env.*.deadline_ms", "10000").AtLeast(1).AtMost(24 * 3600 * 1000),
           AnyMap("env.*.options"),
       }) {
    keys.push_back(std::move(key));
  }
}

}  // namespace manta::config

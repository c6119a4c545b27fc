// The tree policy (for an evaluation: generation and tokenizer) into PolicyConfig.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/reader.h"

namespace manta::config {
namespace {

void ReadTokenizer(Reader& r, const std::string& tree, TokenizerConfig& t) {
  r.Read(tree + ".name", t.name);
  r.Read(tree + ".chat_template", t.chat_template);
  if (t.chat_template == "default") t.chat_template.reset();
  if (const Node* kwargs = r.tree().Find(tree + ".chat_template_kwargs")) t.chat_template_kwargs_json = ToJson(*kwargs);
}

// null and -1 are both "off" in the files that people have.
int64_t TopK(Reader& r, const std::string& path) {
  std::optional<int64_t> k;
  r.Read(path, k);
  return std::max<int64_t>(0, k.value_or(0));
}

void ReadGeneration(Reader& r, const std::string& tree, GenerationConfig& g) {
  const auto p = [&tree](const char* name) { return absl::StrCat(tree, ".", name); };
  r.Read(p("max_new_tokens"), g.max_new_tokens);
  r.Read(p("temperature"), g.temperature);
  r.Read(p("top_p"), g.top_p);
  r.Read(p("min_p"), g.min_p);
  g.top_k = TopK(r, p("top_k"));
  g.val_temperature = g.temperature;
  g.val_top_p = g.top_p;
  r.Read(p("val_temperature"), g.val_temperature);
  r.Read(p("val_top_p"), g.val_top_p);
  g.val_top_k = TopK(r, p("val_top_k"));
  for (const char* name : {"top_p", "val_top_p"}) {
    const double value = name == std::string("top_p") ? g.top_p : g.val_top_p;
    r.Require(value > 0, p(name), "must be above 0; 1 keeps every token");
  }
  // Logits divided by less than this overflow.
  constexpr double kLeastTemperature = 0.01;
  r.Require(g.temperature == 0 || g.temperature >= kLeastTemperature, p("temperature"), "must be 0, or at least 0.01");
  r.Require(g.val_temperature == 0 || g.val_temperature >= kLeastTemperature, p("val_temperature"),
            "must be 0, or at least 0.01");
  if (r.tree().Find(p("stop_token_ids")) != nullptr) {
    absl::StatusOr<std::vector<int64_t>> ids = r.tree().GetInts(p("stop_token_ids"));
    if (ids.ok()) {
      for (int64_t id : *ids) {
        r.Require(id >= 0 && id < (int64_t{1} << 31), p("stop_token_ids"), "a token id must be between 0 and 2^31 - 1");
        g.stop_token_ids.push_back(static_cast<int32_t>(id));
      }
    }
  }
  r.Read(p("stop_strings"), g.stop_strings);
  // As much as the generator takes.
  r.Require(g.stop_strings.size() <= 64, p("stop_strings"), "expected at most 64 texts");
  for (const std::string& stop : g.stop_strings) {
    r.Require(!stop.empty() && stop.size() <= 1024, p("stop_strings"), "expected texts of 1 to 1024 bytes");
  }
  r.Read(p("ignore_eos"), g.ignore_eos);
  r.Read(p("block_size"), g.block_size);
  r.Read(p("num_blocks"), g.num_blocks);
  r.Read(p("max_num_seqs"), g.max_num_seqs);
  r.Read(p("max_batched_tokens"), g.max_batched_tokens);
  r.Read(p("prefix_cache"), g.prefix_cache);
  r.Read(p("vllm_cfg.precision"), g.dtype);
  r.Read(p("vllm_cfg.gpu_memory_utilization"), g.memory_fraction);
  r.Read(p("vllm_cfg.max_model_len"), g.max_model_len);
  const int64_t block_size = g.block_size > 0 ? g.block_size : 16;  // the generator's choice
  r.Require(g.num_blocks == 0 || g.num_blocks * block_size >= g.max_model_len - 1, p("num_blocks"),
            absl::StrCat(g.num_blocks, " blocks of ", block_size, " tokens do not hold one sequence of vllm_cfg.max_model_len = ",
                         g.max_model_len));
}

void ReadOptimizer(Reader& r, OptimizerConfig& o) {
  r.Read("policy.optimizer.kwargs.lr", o.lr);
  r.Read("policy.optimizer.kwargs.weight_decay", o.weight_decay);
  r.Read("policy.optimizer.kwargs.eps", o.eps);
  if (r.tree().Find("policy.optimizer.kwargs.betas") != nullptr) {
    absl::StatusOr<std::vector<double>> betas = r.tree().GetNumbers("policy.optimizer.kwargs.betas");
    if (betas.ok() && betas->size() == 2 && (*betas)[0] >= 0 && (*betas)[0] < 1 && (*betas)[1] >= 0 && (*betas)[1] < 1) {
      o.beta1 = (*betas)[0];
      o.beta2 = (*betas)[1];
    } else {
      r.Fail("policy.optimizer.kwargs.betas", "expected two numbers of at least 0 and below 1");
    }
  }
}

void ReadPacking(Reader& r, const std::string& tree, PackingConfig& packing, const PolicyConfig& p) {
  r.Read(tree + ".enabled", packing.enabled);
  if (!packing.enabled) return;
  packing.train_mb_tokens = p.max_total_sequence_length * p.train_micro_batch_size;
  packing.logprob_mb_tokens = p.max_total_sequence_length * p.logprob_batch_size;
  r.Read(tree + ".algorithm", packing.algorithm);  // sequence_packing's
  r.Read(tree + ".train_mb_tokens", packing.train_mb_tokens);
  r.Read(tree + ".logprob_mb_tokens", packing.logprob_mb_tokens);
  r.Require(packing.train_mb_tokens >= p.max_total_sequence_length, tree + ".train_mb_tokens",
            "must not be below policy.max_total_sequence_length: a sequence has to fit");
  r.Require(packing.logprob_mb_tokens >= p.max_total_sequence_length, tree + ".logprob_mb_tokens",
            "must not be below policy.max_total_sequence_length: a sequence has to fit");
}

void ReadTraining(Reader& r, PolicyConfig& p) {
  r.Read("policy.train_global_batch_size", p.train_global_batch_size);
  r.Read("policy.train_micro_batch_size", p.train_micro_batch_size);
  p.logprob_batch_size = p.train_micro_batch_size;
  r.Read("policy.logprob_batch_size", p.logprob_batch_size);
  r.Read("policy.max_total_sequence_length", p.max_total_sequence_length);
  r.Read("policy.precision", p.precision);
  r.Read("policy.logprob_chunk_size", p.logprob_chunk_size);
  std::optional<double> norm = p.max_grad_norm;
  r.Read("policy.max_grad_norm", norm);
  p.max_grad_norm = norm.value_or(0);
  bool recompute = false;
  r.Read("policy.activation_checkpointing_enabled", recompute);
  p.activation_checkpointing = recompute;
  r.Read("policy.dtensor_cfg.activation_checkpointing", recompute);
  p.activation_checkpointing = p.activation_checkpointing || recompute;
  r.Require(p.train_global_batch_size % p.train_micro_batch_size == 0, "policy.train_micro_batch_size",
            absl::StrCat(p.train_micro_batch_size, " must divide policy.train_global_batch_size = ",
                         p.train_global_batch_size));
  ReadOptimizer(r, p.optimizer);
  ReadScheduler(r, "policy.scheduler", p.scheduler);
  ReadPacking(r, "policy.sequence_packing", p.sequence_packing, p);
  ReadPacking(r, "policy.dynamic_batching", p.dynamic_batching, p);
  r.Require(!(p.sequence_packing.enabled && p.dynamic_batching.enabled), "policy.dynamic_batching.enabled",
            "cannot be combined with policy.sequence_packing.enabled");
}

}  // namespace

void ReadPolicy(Reader& r, RunConfig& run) {
  PolicyConfig& p = run.policy;
  const bool eval = run.algorithm == Algorithm::kEval;
  const char* model_key = eval ? "generation.model_name" : "policy.model_name";
  r.Read(model_key, p.model_name);
  r.Require(!p.model_name.empty(), model_key, "is missing, expected a folder with config.json");
  if (eval) {
    ReadTokenizer(r, "tokenizer", p.tokenizer);
    ReadGeneration(r, "generation", p.generation);
    p.max_total_sequence_length = p.generation.max_model_len;
    p.precision = p.generation.dtype;
    return;
  }
  std::string init = "pretrained";
  r.Read("policy.init", init);
  p.random_init = init == "random";
  if (const Node* overrides = r.tree().Find("policy.hf_config_overrides")) p.hf_config_overrides_json = ToJson(*overrides);
  ReadTokenizer(r, "policy.tokenizer", p.tokenizer);
  ReadTraining(r, p);
  if (run.algorithm == Algorithm::kGrpo) {
    ReadGeneration(r, "policy.generation", p.generation);
    r.Require(p.generation.temperature > 0, "policy.generation.temperature",
              "must be above 0: training needs samples, not the greedy answer");
    r.Require(p.generation.max_model_len <= p.max_total_sequence_length, "policy.generation.vllm_cfg.max_model_len",
              "must not be above policy.max_total_sequence_length");
  }
}

}  // namespace manta::config

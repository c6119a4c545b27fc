#include "common/config/run_config.h"

#include "absl/strings/str_cat.h"
#include "common/config/keys.h"
#include "common/config/tree.h"
#include "common/config/yaml.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/shared_data.h"

namespace manta::config {
namespace {

using ::testing::HasSubstr;

constexpr char kGrpo[] =
    "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4}\n"
    "policy: {model_name: m, train_global_batch_size: 32}\n"
    "data: {train: {dataset_name: ResponseDataset, data_path: t.jsonl}}\n";

absl::StatusOr<RunConfig> Parse(const std::string& text, std::vector<std::string> overrides = {}) {
  absl::StatusOr<Tree> tree = TreeFromText(text, overrides);
  if (!tree.ok()) return tree.status();
  return ParseRunConfig(*tree);
}

std::string ErrorWith(const std::string& override_text, const char* base = kGrpo) {
  absl::StatusOr<RunConfig> run = Parse(base, {override_text});
  return run.ok() ? "ok" : std::string(run.status().message());
}

TEST(KeysTest, EveryDefaultIsYamlAndValid) {
  for (const Key& key : AllKeys()) {
    for (const auto& value : {key.value, key.sft_value, key.eval_value}) {
      if (!value) continue;
      EXPECT_TRUE(ParseYaml(*value, "default").ok()) << key.path;
    }
    EXPECT_NE(FindKey(key.path), nullptr) << key.path;
  }
}

TEST(RunConfigTest, MissingKeysTakeTheirDefaults) {
  absl::StatusOr<RunConfig> run = Parse(kGrpo);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->algorithm, Algorithm::kGrpo);
  EXPECT_EQ(run->grpo.num_prompts_per_step, 8);
  EXPECT_EQ(run->grpo.max_val_samples, 256);
  EXPECT_EQ(run->policy.tokenizer.name, "m");
  EXPECT_EQ(run->policy.logprob_batch_size, 4);
  EXPECT_EQ(run->policy.sequence_packing.train_mb_tokens, 2048);
  EXPECT_EQ(run->policy.generation.max_new_tokens, 512);
  EXPECT_EQ(run->policy.generation.dtype, "bfloat16");
  EXPECT_EQ(run->policy.optimizer.beta2, 0.999);
  EXPECT_EQ(run->loss.kl_output_clamp_value, 10);
  EXPECT_FALSE(run->loss.ratio_clip_c.has_value());
  EXPECT_EQ(run->data.max_input_seq_length, 512);
  EXPECT_EQ(run->data.train.split_validation_size, 0.05);
  EXPECT_EQ(run->checkpointing.checkpoint_dir, "results/grpo");
  EXPECT_EQ(run->env.at("math").verifier, "math");
  EXPECT_TRUE(run->warnings.empty());
}

TEST(RunConfigTest, OverridesAreReadAsYaml) {
  absl::StatusOr<RunConfig> run = Parse(
      kGrpo, {"policy.optimizer.kwargs.lr=1e-3", "policy.optimizer.kwargs.betas=[0.8, 0.9]",
              "policy.generation.stop_strings=[\"\\n\\n\", x]", "policy.generation.top_k=50",
              "policy.scheduler=[{name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 0.1, total_iters: 50}}, "
              "{name: ConstantLR, kwargs: {factor: 1.0, total_iters: 10}}, {milestones: [50]}]",
              "cluster.device=cpu", "cluster.trainer_ranks=2", "env.math.options={tolerance: 1e-6}",
              "data.validation={dataset_name: gsm8k, data_path: v.jsonl}"});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->policy.optimizer.lr, 1e-3);
  EXPECT_EQ(run->policy.optimizer.beta1, 0.8);
  EXPECT_EQ(run->policy.generation.stop_strings, (std::vector<std::string>{"\n\n", "x"}));
  EXPECT_EQ(run->policy.generation.val_top_k, 50);
  ASSERT_EQ(run->policy.scheduler.entries.size(), 2u);
  EXPECT_EQ(run->policy.scheduler.entries[0].name, "LinearLR");
  EXPECT_EQ(run->policy.scheduler.milestones, std::vector<int64_t>{50});
  EXPECT_EQ(run->cluster.device, DeviceChoice::kCpu);
  EXPECT_THAT(run->env.at("math").options_json, HasSubstr("\"tolerance\":1e-06"));
  EXPECT_EQ(run->data.validation->input_key, "question");
  EXPECT_EQ(run->data.train.split_validation_size, 0);
}

TEST(RunConfigTest, UnknownKeysNameTheNearestOne) {
  EXPECT_EQ(ErrorWith("grpo.num_prompt_per_step=3"),
            "override grpo.num_prompt_per_step=3: unknown key 'grpo.num_prompt_per_step'; did you mean "
            "'grpo.num_prompts_per_step'?");
  EXPECT_THAT(ErrorWith("polcy.model_name=x"), HasSubstr("did you mean 'policy'?"));
  EXPECT_THAT(ErrorWith("policy.temperature=1"), HasSubstr("did you mean 'policy.generation.temperature'?"));
  EXPECT_THAT(ErrorWith("policy.optimizer.lr=1"), HasSubstr("did you mean 'policy.optimizer.kwargs.lr'?"));
  EXPECT_THAT(ErrorWith("env.math.num_worker=1"), HasSubstr("did you mean 'env.math.num_workers'?"));
  EXPECT_THAT(ErrorWith("zzzzqqqq=1"), ::testing::Not(HasSubstr("did you mean")));
}

TEST(RunConfigTest, WrongValues) {
  EXPECT_THAT(ErrorWith("grpo.seed=abc"), HasSubstr("grpo.seed: expected an integer of at least 0, got 'abc'"));
  EXPECT_THAT(ErrorWith("grpo.seed=-1"), HasSubstr("at least 0"));
  EXPECT_THAT(ErrorWith("grpo.seed=null"), HasSubstr("must not be null"));
  EXPECT_THAT(ErrorWith("grpo.val_at_end=3"), HasSubstr("expected true or false"));
  EXPECT_THAT(ErrorWith("policy.precision=fp8"), HasSubstr("expected one of float32, bfloat16, float16, got 'fp8'"));
  EXPECT_THAT(ErrorWith("policy=3"), HasSubstr("policy: expected a map of keys, got a number"));
  EXPECT_THAT(ErrorWith("policy.model_name=null"), HasSubstr("policy.model_name: must not be null"));
  EXPECT_THAT(ErrorWith("~policy.model_name"), HasSubstr("policy.model_name: is missing"));
  EXPECT_THAT(ErrorWith("loss_fn.ratio_clip_c=0.5"), HasSubstr("must be above 1"));
  EXPECT_THAT(ErrorWith("policy.optimizer.kwargs.betas=[0.9]"), HasSubstr("expected two numbers"));
  EXPECT_THAT(ErrorWith("policy.optimizer.name=Adagrad"), HasSubstr("expected one of torch.optim.AdamW"));
  EXPECT_THAT(ErrorWith("policy.scheduler={name: StepLR}"), HasSubstr("expected LinearLR"));
  EXPECT_THAT(ErrorWith("policy.scheduler=[{name: ConstantLR}, {name: ConstantLR}]"), HasSubstr("need 1 milestones, got 0"));
  EXPECT_THAT(ErrorWith("policy.scheduler=[{name: ConstantLR, kwargs: {facto: 1}}]"), HasSubstr("unknown key"));
  EXPECT_THAT(ErrorWith("policy.train_global_batch_size=12"), HasSubstr("must divide"));
  EXPECT_THAT(ErrorWith("data.train.dataset_name=squad"), HasSubstr("'squad' is not implemented"));
  EXPECT_THAT(ErrorWith("~data.train.data_path"), HasSubstr("data.train.data_path: is missing"));
  EXPECT_THAT(ErrorWith("data.train.prompt_file=none.txt"), HasSubstr("none.txt"));
  EXPECT_THAT(ErrorWith("data.train.env_name=code"), HasSubstr("env.code: is missing"));
  EXPECT_THAT(ErrorWith("data.train=[1]"), HasSubstr("a list of datasets is not implemented yet"));
  EXPECT_THAT(ErrorWith("sft.seed=1"), HasSubstr("a run has one algorithm"));
  EXPECT_THAT(ErrorWith("+dpo.seed=1"), HasSubstr("the algorithm 'dpo' is not implemented yet"));
  EXPECT_THAT(ErrorWith("policy.generation.temperature=.nan"), HasSubstr("expected a number"));
}

TEST(RunConfigTest, PendingKeysAreErrorsUnlessDefault) {
  EXPECT_EQ(ErrorWith("policy.dtensor_cfg.tensor_parallel_size=1"), "ok");
  EXPECT_THAT(ErrorWith("policy.dtensor_cfg.tensor_parallel_size=2"), HasSubstr("'2' is not implemented yet, expected 1"));
  EXPECT_THAT(ErrorWith("policy.megatron_cfg={enabled: true}"), HasSubstr("not implemented yet, expected false"));
  EXPECT_EQ(ErrorWith("policy.megatron_cfg={enabled: false, nonsense: 3, x: '${no.such}'}"), "ok");
  EXPECT_EQ(ErrorWith("policy.dtensor_cfg.lora_cfg={enabled: false, dim: 8}"), "ok");
  EXPECT_THAT(ErrorWith("data_plane.enabled=true"), HasSubstr("not implemented yet"));
  EXPECT_EQ(ErrorWith("data_plane.enabled=false"), "ok");
  EXPECT_EQ(ErrorWith("grpo.async_grpo=null"), "ok");
  EXPECT_THAT(ErrorWith("+value.model_name=x"), HasSubstr("not implemented yet"));
}

TEST(RunConfigTest, IgnoredKeysWarnInOneLine) {
  absl::StatusOr<RunConfig> run =
      Parse(kGrpo, {"data.num_workers=4", "logger.wandb_enabled=true", "logger.wandb.project=x", "policy.generation.backend=vllm"});
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->warnings.size(), 1u);
  EXPECT_EQ(run->warnings[0],
            "without effect here: data.num_workers (override data.num_workers=4), logger.wandb_enabled (override "
            "logger.wandb_enabled=true)");
}

TEST(RunConfigTest, EvalHasItsOwnTrees) {
  absl::StatusOr<RunConfig> run = Parse(
      "eval: {num_tests_per_prompt: 4, k_value: 2}\ngeneration: {model_name: m, temperature: 0.7}\n"
      "data: {dataset_name: gsm8k, data_path: x.jsonl}\n");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->algorithm, Algorithm::kEval);
  EXPECT_EQ(run->policy.model_name, "m");
  EXPECT_EQ(run->policy.tokenizer.name, "m");
  EXPECT_EQ(run->policy.generation.max_new_tokens, 2048);
  EXPECT_EQ(run->data.train.data_path, "x.jsonl");
  EXPECT_FALSE(run->checkpointing.enabled);
}

TEST(RunConfigTest, ResolvedYamlParsesToTheSameRun) {
  absl::StatusOr<Tree> tree = TreeFromText(kGrpo);
  ASSERT_TRUE(tree.ok()) << tree.status();
  absl::StatusOr<Tree> again = TreeFromText(tree->ToYaml());
  ASSERT_TRUE(again.ok()) << again.status() << tree->ToYaml();
  EXPECT_TRUE(SameValue(tree->root(), again->root()));
  EXPECT_TRUE(ParseRunConfig(*again).ok());
}

TEST(RunConfigTest, SharedSftRecipeFailsForItsTensorParallelismAlone) {
  MANTA_NEED_SHARED("recipes/sft_full_parameter.yaml");
  const auto path = manta::testing::SharedDir() / "recipes/sft_full_parameter.yaml";
  absl::StatusOr<Tree> tree = LoadTree(path);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(std::string(ParseRunConfig(*tree).status().message()),
            absl::StrCat(path.string(), ":36: policy.dtensor_cfg.tensor_parallel_size: '8' is not implemented yet, expected 1"));
  tree = LoadTree(path, std::vector<std::string>{"policy.dtensor_cfg.tensor_parallel_size=1"});
  ASSERT_TRUE(tree.ok()) << tree.status();
  absl::StatusOr<RunConfig> run = ParseRunConfig(*tree);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->data.train.data_path, "data/your_dataset/train.jsonl");
  ASSERT_TRUE(run->data.validation.has_value());
  EXPECT_EQ(run->data.validation->data_path, "data/your_dataset/test.jsonl");
  EXPECT_EQ(run->policy.sequence_packing.train_mb_tokens, 8192);
  EXPECT_EQ(run->policy.optimizer.beta2, 0.98);
  EXPECT_FALSE(run->policy.tokenizer.chat_template.has_value());
  EXPECT_TRUE(run->policy.activation_checkpointing);
  ASSERT_EQ(run->warnings.size(), 1u);
  EXPECT_THAT(run->warnings[0], HasSubstr("logger.wandb_enabled"));
}

}  // namespace
}  // namespace manta::config

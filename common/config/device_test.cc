#include "common/config/device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kGrpo[] =
    "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4}\n"
    "policy:\n"
    "  model_name: m\n"
    "  train_global_batch_size: 32\n"
    "  precision: bfloat16\n"
    "data: {train: {dataset_name: ResponseDataset, data_path: t.jsonl}}\n";
constexpr char kSft[] =
    "sft: {seed: 1}\n"
    "policy: {model_name: m}\n"
    "data: {train: {dataset_name: openai_format, data_path: t.jsonl}}\n";
constexpr char kEval[] =
    "eval: {seed: 1}\n"
    "generation: {model_name: m}\n"
    "data: {dataset_name: ResponseDataset, train_data_path: t.jsonl}\n";

// "cpu", "cuda" or the error.
std::string Chosen(const char* text, std::vector<std::string> overrides, int num_gpus) {
  const Tree tree = TreeFromText(text, overrides).value();
  const absl::StatusOr<bool> cuda = ChooseCuda(tree, ParseRunConfig(tree).value(), num_gpus);
  return cuda.ok() ? (*cuda ? "cuda" : "cpu") : std::string(cuda.status().message());
}

TEST(Device, AutoIsAGpuWhereThereIsOne) {
  EXPECT_EQ(Chosen(kGrpo, {"policy.precision=float32"}, 0), "cpu");
  EXPECT_EQ(Chosen(kGrpo, {}, 2), "cuda");
  EXPECT_EQ(Chosen(kGrpo, {"policy.precision=float32", "cluster.device=cpu"}, 2), "cpu");
  EXPECT_THAT(Chosen(kGrpo, {"cluster.device=cuda"}, 0), HasSubstr("cluster.device: 'cuda', and there is no GPU"));
}

TEST(Device, AGeneratorOnTheCpuComputesInFloat32) {
  EXPECT_THAT(Chosen(kGrpo, {"cluster.device=cpu"}, 2),
              AllOf(HasSubstr("text:5: policy.precision: 'bfloat16'"), HasSubstr("on the CPU (cluster.device: cpu)"),
                    HasSubstr("expected float32")));
  EXPECT_THAT(Chosen(kGrpo, {}, 0), HasSubstr("cluster.device: auto, and there is no GPU"));
  EXPECT_THAT(Chosen(kGrpo, {"policy.precision=float32", "policy.generation.vllm_cfg.precision=bfloat16"}, 0),
              HasSubstr("policy.generation.vllm_cfg.precision: 'bfloat16'"));
  EXPECT_THAT(Chosen(kEval, {}, 0), HasSubstr("generation.vllm_cfg.precision: 'bfloat16'"));
  EXPECT_EQ(Chosen(kEval, {"generation.vllm_cfg.precision=auto"}, 0), "cpu");
  EXPECT_EQ(Chosen(kEval, {}, 1), "cuda");
  EXPECT_EQ(Chosen(kSft, {}, 0), "cpu");  // the trainer computes in bfloat16 on either
}

TEST(Device, Float16AndTwoPrecisionsAreRefused) {
  EXPECT_THAT(Chosen(kSft, {"policy.precision=float16"}, 1), HasSubstr("'float16' is not implemented yet in training"));
  EXPECT_THAT(Chosen(kEval, {"generation.vllm_cfg.precision=float16"}, 1), HasSubstr("expected bfloat16 or float32"));
  EXPECT_THAT(Chosen(kGrpo, {"policy.generation.vllm_cfg.precision=float32"}, 1),
              HasSubstr("must be policy.precision, which is 'bfloat16'"));
  EXPECT_EQ(Chosen(kGrpo, {"policy.generation.vllm_cfg.precision=auto"}, 1), "cuda");
}

}  // namespace
}  // namespace manta::config

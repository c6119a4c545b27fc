// A run that was killed and started again gives, bit for bit, what an uninterrupted one gives.
#include "absl/strings/match.h"
#include "common/base/kill.h"
#include "gtest/gtest.h"
#include "tests/integration/manta_run.h"
#include "tests/integration/same_run.h"

namespace manta::testing {
namespace {

constexpr int kSteps = 12, kSavePeriod = 4;

void ExpectResumeIsExact(const std::string& config, std::vector<std::string> overrides) {
  WorkFolder work;
  overrides.insert(overrides.end(),
                   {absl::StrCat("checkpointing.save_period=", kSavePeriod), "checkpointing.keep_top_k=null"});
  StepMetrics whole;
  {
    MantaRun run(config, overrides, work / "whole");
    ASSERT_EQ(run.Wait().code, 0) << run.Output();
    whole = run.Metrics();
    ASSERT_EQ(whole.size(), size_t{kSteps});
  }
  {
    MantaRun run(config, overrides, work / "killed");
    ASSERT_TRUE(run.WaitStep(1)) << run.Output();
    const int pid = run.PidOf("--actor-id train-1 ");
    ASSERT_TRUE(run.WaitStep(kSavePeriod + 1)) << run.Output();
    KillProcess(pid, SIGKILL);  // a run that has ended meanwhile is as good: see below
    run.Wait();
  }
  // The run may have come further than the kill meant it to.
  for (int step = kSavePeriod + 1; step <= kSteps; ++step) {
    std::filesystem::remove_all(work / "killed" / "ckpt" / absl::StrCat("step_", step));
  }
  MantaRun run(config, overrides, work / "killed");
  ASSERT_EQ(run.Wait().code, 0) << run.Output();
  EXPECT_TRUE(absl::StrContains(run.Output(), absl::StrCat("resuming after step ", kSavePeriod))) << run.Output();
  EXPECT_TRUE(absl::EndsWith(std::filesystem::read_symlink(run.RunFolder()).string(), "exp_002"));
  // The lines of the run that was killed up to the step that was restored, then this run's: one each.
  const auto lines = metrics::ReadMetrics(run.RunFolder() / "metrics.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), size_t{kSteps});
  for (int64_t i = 0; i < kSteps; ++i) EXPECT_EQ((*lines)[i].step, i + 1);
  const StepMetrics resumed = run.Metrics();
  EXPECT_EQ(resumed.size(), size_t{kSteps});
  for (const auto& [step, metrics] : resumed) {
    EXPECT_TRUE(metrics.contains("train/loss") && metrics.contains("train/grad_norm"));
    EXPECT_EQ(Results(metrics), Results(whole.at(step))) << "step " << step;
  }
  const std::string last = absl::StrCat("ckpt/step_", kSteps, "/policy");
  for (const char* file : {"weights/model.safetensors", "optimizer/master.safetensors", "optimizer/exp_avg.safetensors",
                           "optimizer/exp_avg_sq.safetensors"}) {
    ExpectSameFile(work / "whole" / last / file, work / "killed" / last / file);
  }
}

TEST(ResumeTest, SftGoesOnBitForBit) {
  ExpectResumeIsExact(
      kSftConfig,
      SmallSft({absl::StrCat("sft.max_num_steps=", kSteps),
                "policy.scheduler=[{name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 0.1, end_factor: "
                "1.0, total_iters: 6}}, {name: torch.optim.lr_scheduler.CosineAnnealingLR, kwargs: {T_max: 10, "
                "eta_min: 1.0e-5}}, {milestones: [6]}]"}));
}

TEST(ResumeTest, SynchronousGrpoGoesOnBitForBit) {
  ExpectResumeIsExact(kGrpoConfig, SmallGrpo({absl::StrCat("grpo.max_num_steps=", kSteps)}));
}

}  // namespace
}  // namespace manta::testing

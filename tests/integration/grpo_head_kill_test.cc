// The controller is killed in the middle of training, in each of a step's phases, and `manta run` starts it again: the
// workers stay the processes that they were, and every step's numbers and the last checkpoint's bytes are those of a run
// that nobody disturbed.
#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/kill.h"
#include "gtest/gtest.h"
#include "tests/integration/disturbed_run.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

struct Workers {
  std::map<std::string, int> pids;
  Workers(const MantaRun& run, const std::vector<std::string>& actors) {
    for (const std::string& actor : actors) {
      pids[actor] = -1;
      for (const FoundProcess& process : run.Alive()) {
        if (process.actor == actor) pids[actor] = process.pid;
      }
    }
  }
};

// Kills the controller in each of these phases, one after the other.
void ExpectUndisturbed(const std::string& config, std::vector<std::string> overrides,
                       const std::vector<std::string>& actors, const std::vector<std::string>& phases, int steps) {
  WorkFolder work;
  overrides.insert(overrides.end(), {"checkpointing.save_period=4", "checkpointing.keep_top_k=null",
                                     "cluster.max_controller_restarts=100"});
  const StepMetrics whole = WholeRun(work, config, overrides);
  ASSERT_FALSE(whole.empty());
  MantaRun run(config, overrides, work / "killed");
  EventReader events(&run);
  std::optional<Workers> before;
  for (const std::string& phase : phases) {
    ASSERT_TRUE(events.WaitPhase(phase)) << phase << "\n" << run.Output() << run.Log("controller.log");
    if (!before.has_value()) before.emplace(run, actors);
    const int controller = run.PidOf("manta-controller ");
    ASSERT_TRUE(KillProcess(controller, SIGKILL)) << phase << "\n" << run.Output();
  }
  ASSERT_TRUE(events.WaitPhase(absl::StrCat("step ", steps, ": "))) << run.Output();
  const auto after = Workers(run, actors).pids;
  EXPECT_EQ(run.Wait(absl::Seconds(120)).code, 0) << run.Output() << run.Log("controller.log");
  ExpectSameRuns(work, whole, run, steps);
  EXPECT_THAT(run.Output(), HasSubstr("manta: warning: manta-controller was killed by signal 9 (Killed)"));
  EXPECT_THAT(run.Output(), HasSubstr("the workers are those that it had, and the run goes on"));
  // A kill between the sends of one call to the trainer's ranks costs them: seldom, but these kills are close to it.
  if (absl::StrContains(run.Output(), "reached some of the trainer's ranks only")) {
    std::printf("a kill fell between the sends of a call: new workers from the newest checkpoint\n");
  } else {
    EXPECT_EQ(after, before->pids);  // the same processes
    EXPECT_EQ(run.Output().find("cannot go on"), std::string::npos) << run.Output();
  }
  ExpectNothingLeft(run);
}

TEST(HeadKillTest, GrpoGoesOnBitForBitFromEveryPhase) {
  constexpr int kSteps = 40;
  ExpectUndisturbed(kGrpoConfig,
                    SmallGrpo({absl::StrCat("grpo.max_num_steps=", kSteps), "grpo.val_period=8", "grpo.val_at_start=true",
                               "grpo.max_val_samples=50", "grpo.val_batch_size=50"}),
                    {"train-0", "train-1", "gen-0", "reward-0"},
                    {"validation", "step 3: generation", "step 7: policy_training", "step 12: weight_sync",
                     "step 16: validation", "step 20: saving the checkpoint", "step 25: policy_and_reference_logprobs",
                     "step 29: advantage_calculation"},
                    kSteps);
}

TEST(HeadKillTest, SftGoesOnBitForBitFromEveryPhase) {
  constexpr int kSteps = 40;
  ExpectUndisturbed(kSftConfig, SmallSft({absl::StrCat("sft.max_num_steps=", kSteps), "sft.val_period=10"}),
                    {"train-0", "train-1"},
                    {"step 3: data_processing", "step 9: policy_training", "step 16: saving the checkpoint",
                     "step 20: validation"},
                    kSteps);
}

// Several optimiser steps a step of the run: one that was killed between two of them cannot be completed, and is done
// again from the newest checkpoint, or from the beginning.
TEST(HeadKillTest, AStepThatWasTrainedInPartIsDoneAgain) {
  constexpr int kSteps = 12;
  WorkFolder work;
  const auto overrides =
      SmallGrpo({absl::StrCat("grpo.max_num_steps=", kSteps), "policy.train_global_batch_size=4",
                 "policy.train_micro_batch_size=4", "checkpointing.save_period=4", "checkpointing.keep_top_k=null",
                 "loss_fn.force_on_policy_ratio=false", "cluster.max_controller_restarts=100"});
  const StepMetrics whole = WholeRun(work, kGrpoConfig, overrides);
  ASSERT_EQ(whole.size(), size_t{kSteps});
  MantaRun run(kGrpoConfig, overrides, work / "killed");
  EventReader events(&run);
  for (const char* phase : {"step 3: policy_training", "step 7: policy_training"}) {
    ASSERT_TRUE(events.WaitPhase(phase)) << run.Output();
    absl::SleepFor(absl::Milliseconds(15));
    ASSERT_TRUE(KillProcess(run.PidOf("manta-controller "), SIGKILL));
  }
  EXPECT_EQ(run.Wait(absl::Seconds(120)).code, 0) << run.Output() << run.Log("controller.log");
  ExpectSameRuns(work, whole, run, kSteps);
}

TEST(HeadKillTest, AWorkerThatDiesWithoutAControllerCostsTheStepsSinceTheCheckpoint) {
  constexpr int kSteps = 12;
  WorkFolder work;
  const auto overrides = SmallGrpo({absl::StrCat("grpo.max_num_steps=", kSteps), "checkpointing.save_period=4",
                                    "checkpointing.keep_top_k=null"});
  const StepMetrics whole = WholeRun(work, kGrpoConfig, overrides);
  ASSERT_EQ(whole.size(), size_t{kSteps});
  MantaRun run(kGrpoConfig, overrides, work / "killed");
  EventReader events(&run);
  ASSERT_TRUE(events.WaitPhase("step 7: generation")) << run.Output();
  const int controller = run.PidOf("manta-controller "), trainer = run.PidOf("--actor-id train-1 ");
  ASSERT_TRUE(KillProcess(controller, SIGSTOP));  // so that it does not hear of it
  ASSERT_TRUE(KillProcess(trainer, SIGKILL));
  ASSERT_TRUE(KillProcess(controller, SIGKILL));
  EXPECT_EQ(run.Wait(absl::Seconds(120)).code, 0) << run.Output() << run.Log("controller.log");
  EXPECT_THAT(run.Output(), HasSubstr("cannot go on: "));
  EXPECT_THAT(run.Output(), HasSubstr("resuming after step 4 from "));
  ExpectSameRuns(work, whole, run, kSteps);
}

TEST(HeadKillTest, AKilledAgentTakesItsWorkersBackAndNobodyNotices) {
  constexpr int kSteps = 40;
  WorkFolder work;
  const auto overrides = SmallGrpo({absl::StrCat("grpo.max_num_steps=", kSteps), "checkpointing.save_period=4",
                                    "checkpointing.keep_top_k=null"});
  const StepMetrics whole = WholeRun(work, kGrpoConfig, overrides);
  MantaRun run(kGrpoConfig, overrides, work / "killed");
  EventReader events(&run);
  ASSERT_TRUE(events.WaitPhase("step 7: generation")) << run.Output();
  ASSERT_TRUE(KillProcess(run.PidOf("manta-node --controller "), SIGKILL));
  EXPECT_EQ(run.Wait(absl::Seconds(120)).code, 0) << run.Output() << run.Log("controller.log") << run.Log("node.log");
  EXPECT_THAT(run.Output(), HasSubstr("manta: warning: manta-node was killed by signal 9 (Killed)"));
  ExpectSameRuns(work, whole, run, kSteps);
  ExpectNothingLeft(run);
}

// The whole recipe as it is, killed twice in the middle: it learns what it learns. Half a minute on a quiet machine.
TEST(HeadKillTest, TheQuickstartReachesItsAccuracy) {
  WorkFolder work;
  MantaRun run(kGrpoConfig, {}, work / "killed");
  EventReader events(&run);
  for (const char* phase : {"step 250: generation", "step 500: weight_sync"}) {
    ASSERT_TRUE(events.WaitPhase(phase, absl::Minutes(10))) << run.Output();
    ASSERT_TRUE(KillProcess(run.PidOf("manta-controller "), SIGKILL));
  }
  ASSERT_EQ(run.Wait(absl::Minutes(10)).code, 0) << run.Output();
  const StepMetrics metrics = run.Metrics();
  EXPECT_EQ(metrics.size(), 801u);  // the validation before training has a line, too
  const double accuracy = metrics.rbegin()->second.at("validation/accuracy");
  std::printf("accuracy %.4f after %lld steps, the controller killed twice\n", accuracy,
              static_cast<long long>(metrics.rbegin()->first));
  EXPECT_GE(accuracy, 0.85);
}

}  // namespace
}  // namespace manta::testing

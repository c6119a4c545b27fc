// How long a newcomer looks at nothing: from the start of `manta run` to the first training step.
#include "gtest/gtest.h"
#include "tests/integration/manta_run.h"

namespace manta::testing {
namespace {

TEST(FirstStepTest, ComesSoon) {
  WorkFolder work;
  const absl::Time start = absl::Now();
  MantaRun run(kGrpoConfig, {}, work / "run");
  ASSERT_TRUE(run.WaitStep(1)) << run.Output();
  const absl::Duration taken = absl::Now() - start;
  std::printf("first step done after %.2f s, validation before it included\n", absl::ToDoubleSeconds(taken));
  // 5 s is the aim on two free cores; a machine that compiles at the same time gets more.
  EXPECT_LT(taken, absl::Seconds(15));
  run.process().Signal(SIGINT);
  run.Wait();
}

}  // namespace
}  // namespace manta::testing

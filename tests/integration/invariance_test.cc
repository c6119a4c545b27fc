// The same result, but for rounding, from one or two trainer ranks and from one, two or four microbatches.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/integration/manta_run.h"

namespace manta::testing {
namespace {

struct Split {
  const char* name;
  std::vector<std::string> overrides;
};

// `batch` sequences a step, all of them in microbatches of `micro` sequences.
Split Micro(const char* name, int ranks, int micro) {
  return {name,
          {absl::StrCat("cluster.trainer_ranks=", ranks), "policy.sequence_packing.enabled=false",
           absl::StrCat("policy.train_micro_batch_size=", micro), absl::StrCat("policy.logprob_batch_size=", micro)}};
}

// Losses and gradient norms of the first `steps` steps, 1e-5 apart at most.
void ExpectSame(const std::string& config, const std::vector<std::string>& overrides, const std::vector<Split>& splits,
                int steps) {
  WorkFolder work;
  StepMetrics first;
  double worst = 0;
  for (const Split& split : splits) {
    SCOPED_TRACE(split.name);
    std::vector<std::string> all = overrides;
    all.insert(all.end(), split.overrides.begin(), split.overrides.end());
    all.push_back("checkpointing.enabled=false");
    MantaRun run(config, all, work / split.name);
    ASSERT_EQ(run.Wait().code, 0) << run.Output();
    const StepMetrics metrics = run.Metrics();
    if (first.empty()) first = metrics;
    for (int step = 1; step <= steps; ++step) {
      for (const char* name : {"train/loss", "train/grad_norm"}) {
        const double expected = first.at(step).at(name), actual = metrics.at(step).at(name);
        const double apart = std::abs(actual - expected) / std::max(1.0, std::abs(expected));
        EXPECT_LE(apart, 1e-5) << name << " of step " << step << ": " << actual << ", " << splits[0].name << " gave "
                               << expected;
        worst = std::max(worst, apart);
      }
    }
  }
  std::printf("largest difference: %.1e\n", worst);
}

TEST(InvarianceTest, Sft) {
  // Three steps: the third's loss tells the second's weights.
  ExpectSame(
      kSftConfig, SmallSft({"sft.max_num_steps=3"}),
      {Micro("1 rank, 1 microbatch", 1, 64),
       Micro("1 rank, 2 microbatches", 1, 32),
       Micro("2 ranks, 1 microbatch", 2, 32),
       Micro("2 ranks, 4 microbatches", 2, 8),
       {"1 rank, packed by 200 tokens", {"cluster.trainer_ranks=1", "policy.sequence_packing.train_mb_tokens=200"}}},
      3);
}

TEST(InvarianceTest, Grpo) {
  // One step: from the second on, rounding may let a generator draw another token.
  ExpectSame(kGrpoConfig, SmallGrpo({"grpo.max_num_steps=1"}),
             {Micro("1 rank, 1 microbatch", 1, 32),
              Micro("1 rank, 4 microbatches", 1, 8),
              Micro("2 ranks, 2 microbatches", 2, 8),
              {"2 ranks, packed by 100 tokens",
               {"policy.sequence_packing.train_mb_tokens=100", "policy.sequence_packing.logprob_mb_tokens=64"}}},
             1);
}

}  // namespace
}  // namespace manta::testing

// Microseconds an all-reduce and bytes a second, for the shared-memory and the socket collective. Not a test.
#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/comm/group_for_test.h"

namespace manta::comm {
namespace {

// Arguments: ranks, floats, transport (0: shared memory, 1: sockets). Rank 0's time.
void BM_AllReduce(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  const auto transport = static_cast<CpuCollectiveOptions::Transport>(state.range(2));
  std::atomic<bool> done{false};
  const auto statuses = RunGroupForTest(size, transport, [&](Collective& c) -> absl::Status {
    std::vector<float> data(state.range(1), 0.0f);
    float more = 1;
    if (c.rank() == 0) {
      for (auto _ : state) {
        absl::Status status = c.Broadcast(&more, sizeof(more), 0);
        if (status.ok()) status = c.AllReduceSum(absl::MakeSpan(data));
        if (!status.ok()) return status;
      }
      more = 0;
      return c.Broadcast(&more, sizeof(more), 0);
    }
    for (;;) {
      absl::Status status = c.Broadcast(&more, sizeof(more), 0);
      if (!status.ok() || more == 0) return status;
      status = c.AllReduceSum(absl::MakeSpan(data));
      if (!status.ok()) return status;
    }
  });
  for (const absl::Status& status : statuses) MANTA_CHECK(status.ok()) << status.ToString();
  state.SetBytesProcessed(state.iterations() * state.range(1) * 4);
}
BENCHMARK(BM_AllReduce)
    ->ArgNames({"ranks", "floats", "sockets"})
    ->Args({2, 1, 0})
    ->Args({2, 1000, 0})
    ->Args({2, 100000, 0})
    ->Args({2, 4000000, 0})
    ->Args({2, 1, 1})
    ->Args({2, 1000, 1})
    ->Args({2, 100000, 1})
    ->Args({2, 4000000, 1})
    ->UseRealTime();

}  // namespace
}  // namespace manta::comm

// A run whose processes are killed in phases that a test picks, and what makes it the same as one that nobody disturbed:
// every step's numbers and the last checkpoint's bytes. For tests; not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "gtest/gtest.h"
#include "manta/v1/controller.grpc.pb.h"
#include "tests/integration/manta_run.h"
#include "tests/integration/same_run.h"

namespace manta::testing {

// The events of a run over as many controllers as it has.
class EventReader {
 public:
  explicit EventReader(MantaRun* run) : run_(run) {}

  // Until the run says that it is in `phase`, as in "step 3: generation"; false where it ended before.
  bool WaitPhase(const std::string& phase, absl::Duration timeout = absl::Seconds(60)) {
    const absl::Time deadline = absl::Now() + timeout;
    while (absl::Now() < deadline) {
      if (!stream_.has_value() && !Open()) {
        if (run_->process().TryWait().has_value()) return false;
        absl::SleepFor(absl::Milliseconds(5));
        continue;
      }
      const auto event = RunToCompletion(loop_, stream_->Next());
      if (!event.ok() || !event->has_value()) {
        stream_.reset();
        if (run_->process().TryWait().has_value()) return false;
        absl::SleepFor(absl::Milliseconds(10));
        continue;
      }
      last_ = (*event)->sequence();
      if ((*event)->has_ended()) return false;
      if ((*event)->has_phase() && absl::StartsWith((*event)->phase().name(), phase)) return true;
    }
    return false;
  }

 private:
  bool Open() {
    const auto token = rpc::ReadTokenFile(run_->RunFolder() / "token");
    std::string address = ReadFile(run_->RunFolder() / "controller.address").value_or("");
    if (!token.ok() || address.empty()) return false;
    auto channel = rpc::OpenChannel(address.substr(0, address.find('\n')), *token);
    if (!channel.ok()) return false;
    stubs_.push_back(v1::ControllerService::NewStub(*channel));
    v1::WatchRunRequest request;
    request.set_after_sequence(last_);
    stream_.emplace(rpc::OpenStream(loop_, stubs_.back()->async(), &rpc::AsyncOf<v1::ControllerService>::WatchRun,
                                    request, {.deadline = absl::Minutes(5)}));
    return true;
  }

  MantaRun* const run_;
  EventLoop loop_;
  std::vector<std::unique_ptr<v1::ControllerService::Stub>> stubs_;
  std::optional<rpc::Stream<v1::RunEvent>> stream_;
  uint64_t last_ = 0;
};

// `killed` lies in work/killed, the run that nobody disturbed in work/whole.
inline void ExpectSameRuns(const WorkFolder& work, const StepMetrics& whole, const MantaRun& killed, int steps) {
  const auto lines = metrics::ReadMetrics(killed.RunFolder() / "metrics.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status();
  std::vector<int64_t> logged;
  for (const auto& line : *lines) logged.push_back(line.step);
  std::vector<int64_t> expected;
  for (const auto& [step, metrics] : whole) expected.push_back(step);
  EXPECT_EQ(logged, expected);
  for (const auto& [step, metrics] : killed.Metrics()) {
    ASSERT_TRUE(whole.contains(step)) << step;
    EXPECT_EQ(Results(metrics), Results(whole.at(step))) << "step " << step;
  }
  const std::string last = absl::StrCat("ckpt/step_", steps, "/policy");
  for (const char* file : {"weights/model.safetensors", "optimizer/master.safetensors", "optimizer/exp_avg.safetensors",
                           "optimizer/exp_avg_sq.safetensors"}) {
    ExpectSameFile(work / "whole" / last / file, work / "killed" / last / file);
  }
}

inline void ExpectNothingLeft(const MantaRun& run) {
  const absl::Time end = absl::Now() + absl::Seconds(5);
  while (!run.Alive().empty() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
  for (const FoundProcess& process : run.Alive()) ADD_FAILURE() << "left: " << process.pid << " " << process.command;
}

inline StepMetrics WholeRun(const WorkFolder& work, const std::string& config, const std::vector<std::string>& overrides) {
  MantaRun run(config, overrides, work / "whole");
  EXPECT_EQ(run.Wait().code, 0) << run.Output();
  return run.Metrics();
}

}  // namespace manta::testing

// A `manta run` of one of the quickstart's configurations, as a user starts it, in a scratch folder of its own (the
// work folder: logs/, ckpt/). The programs are those of $MANTA_BUILD_DIR/bin. Not thread-safe. The destructor kills
// whatever of the run is left; the work folder belongs to the test.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "common/metrics/run_logger.h"
#include "controller/node/process.h"
#include "gtest/gtest.h"
#include "tests/integration/marked_processes.h"
#include "tests/testing/build_dir.h"

namespace manta::testing {

// A folder that is removed at the end, unless the test has failed.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name = absl::StrCat(::testing::TempDir(), "/manta_run_test.XXXXXX");
    EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  ~WorkFolder() {
    if (!::testing::Test::HasFailure()) std::filesystem::remove_all(path_);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// step -> the flat names of metrics.jsonl.
using StepMetrics = std::map<int64_t, std::map<std::string, double>>;

class MantaRun {
 public:
  // `work` is made where it does not exist; a second run in it resumes from the first one's checkpoints.
  MantaRun(const std::string& config, std::vector<std::string> overrides, std::filesystem::path work)
      : work_(std::move(work)), output_(work_ / "output.txt") {
    static int counter = 0;
    mark_ = absl::StrCat("run-test-", getpid(), "-", ++counter);
    std::filesystem::create_directories(work_);
    std::vector<std::string> args = {"run", config, absl::StrCat("logger.log_dir=", (work_ / "logs").string()),
                                     absl::StrCat("checkpointing.checkpoint_dir=", (work_ / "ckpt").string())};
    args.insert(args.end(), overrides.begin(), overrides.end());
    const std::filesystem::path bin = BuildDir() / "bin";
    const int fd = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    EXPECT_GE(fd, 0) << output_;
    process_.emplace(Process::Spawn({.executable = (bin / "manta").string(),
                                     .args = std::move(args),
                                     .env = {{kMarkVariable, mark_}},
                                     .stdout_fd = fd,
                                     .stderr_fd = fd,
                                     .new_process_group = true})
                         .value());
    close(fd);
  }
  ~MantaRun() {
    for (int i = 0; i < 20; ++i) {
      const auto alive = Alive();
      if (alive.empty()) break;
      for (const FoundProcess& process : alive) KillProcess(process.pid, SIGKILL);
      process_->TryWait();
    }
    process_->WaitFor(absl::Seconds(5));
  }

  // How it ended; a failure of the test where it has not after `timeout`.
  ExitStatus Wait(absl::Duration timeout = absl::Seconds(60)) {
    const std::optional<ExitStatus> exit = process_->WaitFor(timeout);
    if (!exit) ADD_FAILURE() << "still runs after " << timeout << ":\n" << Output();
    return exit.value_or(ExitStatus());
  }
  // Until `step` is in metrics.jsonl; false where the run ended before.
  bool WaitStep(int64_t step, absl::Duration timeout = absl::Seconds(60)) {
    const absl::Time deadline = absl::Now() + timeout;
    while (absl::Now() < deadline) {
      const bool ended = process_->TryWait().has_value();
      const StepMetrics metrics = Metrics();
      if (!metrics.empty() && metrics.rbegin()->first >= step) return true;
      if (ended) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  // The one process whose command has `part`; -1 where none has. "manta" itself is process(). A worker is found by
  // "--actor-id train-0 " whether that is among its arguments or in its environment.
  int PidOf(const std::string& part) const {
    for (const FoundProcess& process : Alive()) {
      const bool is_actor = !process.actor.empty() && part == absl::StrCat("--actor-id ", process.actor, " ");
      if (absl::StrContains(process.command, part) || is_actor) return process.pid;
    }
    return -1;
  }
  std::vector<FoundProcess> Alive() const { return MarkedProcesses(mark_); }

  std::string Output() const { return ReadFile(output_).value_or(""); }
  // Of the newest run in the work folder, which is this one from its first line of output on.
  std::filesystem::path RunFolder() const { return work_ / "logs" / "latest"; }
  std::string Log(const std::string& name) const { return ReadFile(RunFolder() / "logs" / name).value_or(""); }
  StepMetrics Metrics() const {
    StepMetrics metrics;
    const auto records = metrics::ReadMetrics(RunFolder() / "metrics.jsonl");
    if (!records.ok() || !absl::StrContains(Output(), "run folder: ")) return metrics;
    for (const auto& record : *records) {
      auto& step = metrics[record.step];
      step.insert(record.values.begin(), record.values.end());
    }
    return metrics;
  }
  Process& process() { return *process_; }

 private:
  std::filesystem::path work_, output_;
  std::string mark_;
  std::optional<Process> process_;
};

// Overrides that make the GRPO quickstart's step small (about 50 ms) and leave only its training.
inline std::vector<std::string> SmallGrpo(std::vector<std::string> more) {
  std::vector<std::string> all = {"grpo.num_prompts_per_step=8",
                                  "grpo.num_generations_per_prompt=4",
                                  "policy.train_global_batch_size=32",
                                  "policy.train_micro_batch_size=32",
                                  "grpo.val_period=0",
                                  "grpo.val_at_start=false",
                                  "grpo.val_at_end=false",
                                  "checkpointing.metric_name=null",
                                  "logger.tensorboard_enabled=false"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
inline std::vector<std::string> SmallSft(std::vector<std::string> more) {
  std::vector<std::string> all = {"policy.train_global_batch_size=64",
                                  "policy.train_micro_batch_size=64",
                                  "sft.val_period=0",
                                  "sft.val_at_start=false",
                                  "sft.val_at_end=false",
                                  "checkpointing.metric_name=null",
                                  "logger.tensorboard_enabled=false"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

constexpr char kGrpoConfig[] = "configs/quickstart_grpo.yaml";
constexpr char kSftConfig[] = "configs/quickstart_sft.yaml";

}  // namespace manta::testing

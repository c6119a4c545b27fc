// Job with real processes: the runtime's test controller (tests/integration) in the place of manta-controller.
#include "controller/cli/job.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/kill.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "controller/cli/run_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Processes below `pid`, by the name of their executable.
std::multimap<std::string, pid_t> Descendants(pid_t pid) {
  std::multimap<std::string, pid_t> out;
  std::error_code error;
  for (const auto& task : fs::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child; children >> child;) {
      const std::string name = fs::read_symlink(absl::StrCat("/proc/", child, "/exe"), error).filename().string();
      out.emplace(name, child);
      for (const auto& below : Descendants(child)) out.insert(below);
    }
  }
  return out;
}

class JobTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    BlockSignals({SIGINT, SIGTERM, SIGHUP});  // as manta's main does, before any thread
  }
  void SetUp() override {
    const char* build = std::getenv("MANTA_BUILD_DIR");
    build_bin_ = fs::absolute(fs::path(build != nullptr ? build : "build") / "bin");
    dir_ = fs::temp_directory_path() / absl::StrCat("job_test.", getpid());
    fs::create_directories(dir_ / "bin");
    fs::create_symlink(build_bin_ / "runtime_controller", dir_ / "bin" / "manta-controller");
    fs::create_symlink(build_bin_ / "manta-node", dir_ / "bin" / "manta-node");
    run_dir_ = MakeRunDir(dir_ / "logs").value();
  }
  void TearDown() override {
    const absl::Time end = absl::Now() + absl::Seconds(5);
    while (!Descendants(getpid()).empty() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(20));
    EXPECT_TRUE(Descendants(getpid()).empty()) << "processes were left behind";
    // A shim whose agent was killed may still write the last line of its worker's log.
    std::error_code error;
    do {
      fs::remove_all(dir_, error);
    } while (error && absl::Now() < end);
    EXPECT_FALSE(error) << error.message();
  }

  // Runs a job while `meanwhile` acts; every worker must be up before it does.
  absl::Status Run(const std::string& config, const std::function<void()>& meanwhile) {
    std::ofstream(run_dir_ / "config") << config;
    Job job({.bin_dir = dir_ / "bin",
             .run_dir = run_dir_,
             .config_path = run_dir_ / "config",
             .wait_on_loss = wait_on_loss_,
             .max_restarts = max_restarts_});
    std::thread actor([&] {
      const absl::Time end = absl::Now() + absl::Seconds(20);
      while (Descendants(getpid()).count("runtime_worker") == 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(20));
      for (const auto& [name, pid] : Descendants(getpid())) {
        if (name == "runtime_worker") workers_.insert(pid);
      }
      absl::SleepFor(absl::Milliseconds(300));
      started_ = absl::Now();
      if (meanwhile) meanwhile();
    });
    absl::Status status = job.Run();
    ended_ = absl::Now();
    actor.join();
    summary_ = job.summary();
    checkpoint_ = job.checkpoint();
    return status;
  }
  // The agent and each worker's shim are the same executable; the agent is the job's own child.
  static void KillAgent() {
    std::error_code error;
    for (const auto& task : fs::directory_iterator(absl::StrCat("/proc/", getpid(), "/task"), error)) {
      std::ifstream children(task.path() / "children");
      for (pid_t child; children >> child;) {
        if (fs::read_symlink(absl::StrCat("/proc/", child, "/exe"), error).filename() == "manta-node") KillProcess(child, SIGKILL);
      }
    }
  }
  // The workers that run now, wherever they have gone.
  static std::set<pid_t> Running(const std::set<pid_t>& pids) {
    std::set<pid_t> running;
    for (pid_t pid : pids) {
      if (KillProcess(pid, 0)) running.insert(pid);
    }
    return running;
  }
  std::string Log(const std::string& name) const {
    std::ifstream file(run_dir_ / "logs" / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void Kill(const std::string& name, int signal = SIGKILL) {
    for (const auto& [other, pid] : Descendants(getpid())) {
      if (other == name) {
        KillProcess(pid, signal);
        return;
      }
    }
    ADD_FAILURE() << "there is no " << name;
  }
  // Workers may be adopted by others as their parents die.
  void ExpectNoWorkerLeft() {
    const absl::Time end = absl::Now() + absl::Seconds(12);
    for (pid_t pid : workers_) {
      while (KillProcess(pid, 0) && absl::Now() < end) absl::SleepFor(absl::Milliseconds(50));
      EXPECT_FALSE(KillProcess(pid, 0)) << "worker " << pid << " is left";
    }
  }

  fs::path dir_, build_bin_, run_dir_;
  bool wait_on_loss_ = true;
  int max_restarts_ = 3;
  std::set<pid_t> workers_;
  absl::Time started_, ended_;
  std::string summary_, checkpoint_;
};

TEST_F(JobTest, RunsToItsEnd) {
  const absl::Status status = Run("seconds 1\nwork 1 0\n", nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(summary_, "waited");
  EXPECT_EQ(checkpoint_, "step_1");
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, InterruptEndsItInOrder) {
  const absl::Status status = Run("work 1 0\n", [] { kill(getpid(), SIGINT); });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(ExitCode(status), 1);
  EXPECT_LT(ended_ - started_, absl::Seconds(8));
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, ANodeAgentThatEndsBeforeItJoinsIsNamed) {
  fs::remove(dir_ / "bin" / "manta-node");
  fs::create_symlink("/bin/false", dir_ / "bin" / "manta-node");
  std::ofstream(run_dir_ / "config") << "work 1 0\n";
  Job job({.bin_dir = dir_ / "bin", .run_dir = run_dir_, .config_path = run_dir_ / "config"});
  const absl::Time start = absl::Now();
  const absl::Status status = job.Run();
  EXPECT_THAT(std::string(status.message()), HasSubstr("manta-node exited with code 1"));
  EXPECT_EQ(ExitCode(status), 69);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(JobTest, AKilledControllerIsNamed) {
  wait_on_loss_ = false;
  const absl::Status status = Run("work 1 0\n", [this] { Kill("runtime_controller"); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("manta-controller was killed by signal 9"));
  EXPECT_EQ(ExitCode(status), 69);
  EXPECT_GT(GetErrorInfo(status).last_lines_size(), 0);
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, AKilledControllerIsStartedAgainAndFindsItsWorkers) {
  std::set<pid_t> after;
  const absl::Status status = Run("seconds 3\nwork 2 0\n", [&] {
    Kill("runtime_controller");
    absl::SleepFor(absl::Milliseconds(1500));
    after = Running(workers_);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(summary_, "waited");
  EXPECT_EQ(after, workers_);
  EXPECT_GE(ended_ - started_, absl::Seconds(3));  // it began again with the groups that were there
  EXPECT_THAT(Log("controller.log"), HasSubstr("job run: goes on"));
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, AControllerThatIsKilledTooOftenEndsTheRun) {
  max_restarts_ = 1;
  const absl::Status status = Run("work 1 0\n", [this] {
    Kill("runtime_controller");
    const absl::Time end = absl::Now() + absl::Seconds(20);
    absl::SleepFor(absl::Milliseconds(100));
    while (Descendants(getpid()).count("runtime_controller") == 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(20));
    Kill("runtime_controller");
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("after 1 restarts within a minute"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("manta-controller was killed by signal 9"));
  EXPECT_EQ(ExitCode(status), 69);
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, InterruptWhileTheControllerIsAwayEndsEverything) {
  const absl::Status status = Run("work 1 0\n", [this] {
    Kill("runtime_controller");
    kill(getpid(), SIGINT);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_LT(ended_ - started_, absl::Seconds(8));
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, AKilledWorkerIsNamed) {
  const absl::Status status = Run("work 1 0\n", [this] { Kill("runtime_worker"); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("work-0"));
  EXPECT_EQ(ExitCode(status), 69);
}

TEST_F(JobTest, AKilledNodeAgentIsNamed) {
  wait_on_loss_ = false;
  const absl::Status status = Run("work 1 0\n", [] { KillAgent(); });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(ExitCode(status), 69) << status;
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, AKilledNodeAgentIsStartedAgainAndTakesItsWorkersBack) {
  std::set<pid_t> after;
  const absl::Status status = Run("seconds 4\nwork 2 0\n", [&] {
    KillAgent();
    absl::SleepFor(absl::Milliseconds(1500));
    after = Running(workers_);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(after, workers_);
  EXPECT_THAT(Log("node.log"), HasSubstr("runs, and is taken over"));
  ExpectNoWorkerLeft();
}

TEST_F(JobTest, AMissingExecutableIsNamed) {
  fs::remove(dir_ / "bin" / "manta-node");
  std::ofstream(run_dir_ / "config") << "work 1 0\n";
  Job job({.bin_dir = dir_ / "bin", .run_dir = run_dir_, .config_path = run_dir_ / "config"});
  EXPECT_THAT(std::string(job.Run().message()), HasSubstr("manta-node: No such file"));
}

}  // namespace
}  // namespace manta::cli

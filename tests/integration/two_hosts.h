// A cluster of two hosts on one machine, for tests that need root: the controller and node "a" here, node "b" in a network
// namespace, with process ids and a /dev/shm of its own, and, where asked for, with a folder of its own that hides the one of
// that name. It works in another folder. So neither Unix sockets nor shared memory lead across, and the two speak over the cable
// between them, with certificates.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "common/metrics/run_logger.h"
#include "common/rpc/certificates.h"
#include "controller/node/process.h"
#include "gtest/gtest.h"
#include "tests/integration/job_folder.h"
#include "tests/integration/marked_processes.h"
#include "tests/testing/netns.h"

namespace manta::testing {

// A run that was submitted, and is followed.
class SubmittedRun {
 public:
  SubmittedRun(Process process, std::filesystem::path work) : process_(std::move(process)), work_(std::move(work)) {}

  ExitStatus Wait(absl::Duration timeout = absl::Seconds(120)) {
    const std::optional<ExitStatus> exit = process_.WaitFor(timeout);
    if (!exit) ADD_FAILURE() << "still runs after " << timeout << ":\n" << Output();
    return exit.value_or(ExitStatus());
  }
  bool WaitStep(int64_t step, absl::Duration timeout = absl::Seconds(60)) {
    return Await([&] { return LastStep() >= step || process_.TryWait().has_value(); }, timeout) && LastStep() >= step;
  }
  bool WaitOutput(const std::string& text, absl::Duration timeout = absl::Seconds(60)) const {
    return Await([&] { return absl::StrContains(Output(), text); }, timeout);
  }
  std::string Output() const { return ReadFile(work_ / "output.txt").value_or(""); }
  std::filesystem::path RunFolder() const { return work_ / "logs" / "latest"; }
  // step -> the flat names of metrics.jsonl.
  std::map<int64_t, std::map<std::string, double>> Metrics() const {
    std::map<int64_t, std::map<std::string, double>> metrics;
    const auto records = metrics::ReadMetrics(RunFolder() / "metrics.jsonl");
    if (!records.ok()) return metrics;
    for (const auto& record : *records) metrics[record.step].insert(record.values.begin(), record.values.end());
    return metrics;
  }

 private:
  static bool Await(const std::function<bool()>& condition, absl::Duration limit) {
    for (const absl::Time until = absl::Now() + limit; !condition(); absl::SleepFor(absl::Milliseconds(20))) {
      if (absl::Now() > until) return false;
    }
    return true;
  }
  int64_t LastStep() const {
    const auto metrics = Metrics();
    return metrics.empty() ? 0 : metrics.rbegin()->first;
  }

  Process process_;
  const std::filesystem::path work_;
};

class TwoHosts {
 public:
  // Empty where they can be made.
  static std::string Missing() {
    if (access("/usr/bin/unshare", X_OK) != 0) return "util-linux is not installed";
    return NetworkNamespace::Missing();
  }

  explicit TwoHosts(int subnet) : folder_("two-hosts"), host_("h", subnet) {
    const std::filesystem::path tls = folder_.path() / "tls";
    EXPECT_TRUE(rpc::InitCertificates(tls, {.job = "job"}).ok());
    setenv("MANTA_TLS_DIR", tls.c_str(), 1);
    auto [controller, address] =
        folder_.StartServer("manta-controller",
                            {"--cluster", "--run-dir", folder_.path().string(), "--token-file",
                             (folder_.path() / "token").string(), "--listen", host_.here() + ":0"},
                            "controller.log");
    processes_.push_back(std::move(controller));
    address_ = address;
  }
  ~TwoHosts() {
    unsetenv("MANTA_TLS_DIR");
    folder_.KillAll();
    for (Process& process : processes_) process.WaitFor(absl::Seconds(5));
    folder_.Remove();
  }

  void JoinHere() { processes_.push_back(folder_.Start("manta-node", NodeArgs("a", host_.here()), "node-a.log")); }
  // `hidden`: a folder that is another one there.
  void JoinThere(const std::filesystem::path& hidden = {}) {
    std::vector<std::string> agent = NodeArgs("b", host_.there());
    agent.insert(agent.begin(), (folder_.bin() / "manta-node").string());
    std::vector<std::string> argv = {"/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"};
    const std::string mount = hidden.empty() ? "" : absl::StrCat("mount -t tmpfs none '", hidden.string(), "' && ");
    argv.insert(argv.end(), {"/bin/sh", "-c", mount + "mount -t tmpfs none /dev/shm && cd / && exec \"$@\"", "sh"});
    argv.insert(argv.end(), agent.begin(), agent.end());
    argv = host_.Run(argv);
    processes_.push_back(folder_.Start(argv[0], {argv.begin() + 1, argv.end()}, "node-b.log"));
  }

  // `manta submit --follow`, with logs/ and ckpt/ in `work`.
  SubmittedRun Submit(const std::string& config, std::vector<std::string> overrides, const std::filesystem::path& work) {
    std::filesystem::create_directories(work);
    std::vector<std::string> args = {"submit", config, absl::StrCat("logger.log_dir=", (work / "logs").string()),
                                     absl::StrCat("checkpointing.checkpoint_dir=", (work / "ckpt").string())};
    args.insert(args.end(), overrides.begin(), overrides.end());
    args.insert(args.end(), {"--follow", "--dir", folder_.path().string()});
    const int fd = open((work / "output.txt").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    auto process = Process::Spawn(
        {.executable = (folder_.bin() / "manta").string(), .args = args, .stdout_fd = fd, .stderr_fd = fd, .death_signal = SIGKILL});
    close(fd);
    return SubmittedRun(std::move(process).value(), work);
  }

  // As this machine knows it, wherever it runs; -1 where there is none.
  int PidOf(const std::string& actor) const {
    for (const FoundProcess& process : folder_.Alive()) {
      const bool worker = absl::StrContains(process.command, absl::StrCat("manta-", actor.substr(0, actor.find('-'))));
      if (worker && absl::EndsWith(process.actor, actor)) return process.pid;
    }
    return -1;
  }
  std::string Log(const std::string& name) const { return ReadFile(folder_.path() / "logs" / name).value_or(""); }
  std::string Logs() const { return absl::StrCat(Log("controller.log"), Log("node-a.log"), Log("node-b.log")); }
  // Until it has `text`.
  bool AwaitLog(const std::string& name, const std::string& text) const {
    for (const absl::Time until = absl::Now() + absl::Seconds(10); !absl::StrContains(Log(name), text);) {
      if (absl::Now() > until) return false;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return true;
  }
  NetworkNamespace& host() { return host_; }

 private:
  std::vector<std::string> NodeArgs(const std::string& name, const std::string& address) const {
    return {"--controller", address_, "--token-file", folder_.agents_token_file(), "--name", name, "--address", address,
            "--cpu-slots", "4"};
  }

  JobFolder folder_;
  NetworkNamespace host_;
  std::vector<Process> processes_;
  std::string address_;
};

}  // namespace manta::testing

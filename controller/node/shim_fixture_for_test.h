// A test as the agent of a launcher, shims and workers that are real processes. The workers are this program again:
// shim_test_main.cc says what each of their modes does.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/event_loop.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "controller/node/launcher.h"
#include "controller/node/local_processes.h"
#include "controller/node/state_dir.h"
#include "gtest/gtest.h"

namespace manta::node {

class ShimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static int counter = 0;
    dir_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("shim-test-", getpid(), "-", ++counter);
    std::filesystem::create_directories(dir_ / "logs");
    NewAgent();
  }
  void TearDown() override {
    processes_.reset();  // grace is over soon, or was never meant to be
    for (const auto& [name, pid] : pids_) KillProcess(pid, SIGKILL);
    Await([&] { return ShimNames((dir_ / "state").string()).empty(); }, absl::Seconds(3));
    std::error_code ignored;
    if (!HasFailure()) std::filesystem::remove_all(dir_, ignored);
  }
  // In place of an earlier one, whose sockets close as if it had been killed.
  void NewAgent() {
    processes_.reset();
    state_.reset();
    const int launcher = ForkLauncher((dir_ / "state").string(), 0, nullptr).value();
    state_.emplace(StateDir::Open((dir_ / "state").string()).value());
    processes_ = std::make_unique<LocalProcesses>(loop_, launcher, state_->path(), state_->agent_key());
    processes_->on_report = [this](ShimId, const v1::ShimReport& report) {
      for (const auto& actor : report.actors()) Note(actor);
    };
    processes_->on_gone = [this](ShimId shim, const std::string& why) { gone_[shim] = why; };
  }
  void Note(const v1::ActorReport& actor) {
    if (actor.has_started()) pids_[actor.actor_id()] = actor.pid();
    if (actor.worker().has_ready()) ready_[actor.actor_id()] = actor.worker().ready().address();
    if (actor.worker().has_beat()) beats_[actor.actor_id()].push_back(actor.worker().beat());
    if (actor.has_exited()) exits_[actor.actor_id()] = actor.exited();
    if (actor.has_start_failed()) failed_[actor.actor_id()] = actor.start_failed().message();
  }
  ShimId NewShim(const std::string& name, absl::Duration grace = absl::Seconds(10)) {
    return processes_->StartShim({.name = name, .agent_grace = grace});
  }
  void Start(ShimId shim, const std::string& id, std::vector<std::string> args, bool prefork = false,
             const std::string& variable = "", const v1::Limits& limits = {}) {
    v1::ShimOrder order;
    v1::StartActor* start = order.mutable_start();
    start->set_actor_id(id);
    start->set_epoch(1);
    start->set_executable(std::filesystem::read_symlink("/proc/self/exe").string());
    start->add_args("--worker");
    for (auto& arg : args) start->add_args(std::move(arg));
    start->set_log_path((dir_ / "logs" / (id + ".log")).string());
    (*start->mutable_env())["OWN"] = id;
    if (!variable.empty()) (*start->mutable_env())[variable] = id;
    start->set_prefork(prefork);
    *start->mutable_limits() = limits;
    ASSERT_TRUE(processes_->Send(shim, order));
  }
  void Lease(ShimId shim, absl::Duration ttl) {
    v1::ShimOrder order;
    order.mutable_lease()->set_ttl_ms(absl::ToInt64Milliseconds(ttl));
    EXPECT_TRUE(processes_->Send(shim, order));
  }
  template <typename Condition>
  bool Await(Condition condition, absl::Duration limit = absl::Seconds(10)) {
    const absl::Time until = absl::Now() + limit;
    while (!condition()) {
      if (absl::Now() > until) return false;
      loop_.RunFor(absl::Milliseconds(5));
    }
    return true;
  }
  static bool Runs(int64_t pid) {
    const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
    const size_t paren = stat.rfind(')');
    return paren != std::string::npos && stat[paren + 2] != 'Z';
  }
  static int64_t ParentOf(int64_t pid) {
    const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
    int64_t parent = -1;
    std::sscanf(stat.c_str() + stat.rfind(')') + 2, "%*c %ld", &parent);
    return parent;
  }
  std::string Log(const std::string& id) { return ReadFile(dir_ / "logs" / (id + ".log")).value_or(""); }

  EventLoop loop_;
  std::filesystem::path dir_;
  std::optional<StateDir> state_;
  std::unique_ptr<LocalProcesses> processes_;
  std::map<std::string, int64_t> pids_;
  std::map<std::string, std::string> ready_, failed_;
  std::map<std::string, v1::ActorExited> exits_;
  std::map<std::string, std::vector<v1::WorkerBeat>> beats_;
  std::map<ShimId, std::string> gone_;
};

}  // namespace manta::node

// The agent's logic on a simulated clock, with ports that only write down what they are asked. For tests only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/node/agent_core.h"
#include "gtest/gtest.h"

namespace manta::node {

class FakeProcesses : public ProcessPort {
 public:
  ShimId StartShim(const ShimSpec& spec) override {
    names[++last] = spec.name;
    grace = spec.agent_grace;
    return last;
  }
  bool Send(ShimId shim, const v1::ShimOrder& order) override {
    if (refuse) return false;
    if (order.has_lease()) {
      leases[shim] = absl::Milliseconds(order.lease().ttl_ms());
      ++num_leases;
    } else {
      orders.emplace_back(shim, order);
    }
    return true;
  }
  void KillShim(ShimId shim) override { killed.insert(shim); }
  void Recover(std::function<void(Recovered)> done) override { done(recovered); }

  ShimId last = 0;
  absl::Duration grace;
  std::map<ShimId, std::string> names;
  std::vector<std::pair<ShimId, v1::ShimOrder>> orders;
  std::map<ShimId, absl::Duration> leases;
  int num_leases = 0;
  std::set<ShimId> killed;
  bool refuse = false;
  Recovered recovered;
};

class FakeUplink : public UplinkPort {
 public:
  void Open() override {
    ++opened;
    open = true;
  }
  void Send(const v1::NodeEvent& event) override {
    if (open) events.push_back(event);
  }
  void Close() override { open = false; }
  // The events of one kind that came since the last Clear.
  std::vector<v1::ActorReport> Reports() const {
    std::vector<v1::ActorReport> reports;
    for (const auto& event : events) {
      if (event.has_report()) reports.push_back(event.report());
    }
    return reports;
  }
  const v1::NodeHello& LastHello() const {
    for (auto event = events.rbegin(); event != events.rend(); ++event) {
      if (event->has_hello()) return event->hello();
    }
    ADD_FAILURE() << "no hello";
    return v1::NodeHello::default_instance();
  }
  int opened = 0;
  bool open = false;
  std::vector<v1::NodeEvent> events;
};

class FakeHost : public HostPort {
 public:
  void RememberExit(const v1::ActorReport& exit) override { remembered.insert(exit.actor_id()); }
  void ForgetExit(const v1::ActorRef& actor) override { forgotten.insert(actor.actor_id()); }
  bool PortIsFree(int port) override { return port != 20001; }
  std::vector<std::string> LastLines(const std::string&) override { return {"the last line"}; }
  void DumpStacks(int64_t pid, const std::string& log_path, std::function<void(std::string)> done) override {
    dumps.push_back(absl::StrCat(pid, " ", log_path));
    done("it waits");
  }
  std::set<std::string> remembered, forgotten;
  std::vector<std::string> dumps;
};

class AgentCoreTest : public ::testing::Test {
 protected:
  AgentCoreTest() : loop_(EventLoop::Simulated()) {}
  void Create() {
    AgentOptions options;
    options.hello.set_node("n0");
    options.hello.set_incarnation(7);
    options.hello.add_gpus()->set_uuid("GPU-a");
    options.join_timeout = absl::Seconds(30);
    options.controller_address = "head:1";
    options.port_max = 20003;
    agent_ = std::make_unique<AgentCore>(*loop_, processes_, uplink_, host_, options,
                                         [this](const absl::Status& status) { done_ = status; });
    agent_->Start();
  }
  void Join(bool wait = true) {
    if (agent_ == nullptr) Create();
    v1::NodeCommand command;
    v1::NodeWelcome* welcome = command.mutable_welcome();
    welcome->set_beat_interval_ms(1000);
    welcome->set_run_dir("/run");
    welcome->set_lease_ms(8000);
    welcome->set_agent_grace_ms(wait ? 10000 : 0);
    welcome->set_controller_grace_ms(wait ? 60000 : 0);
    agent_->OnCommand(command);
  }
  void Start(const std::string& id, uint64_t epoch, std::function<void(v1::StartActor*)> more = {}) {
    v1::NodeCommand command;
    command.mutable_start()->set_actor_id(id);
    command.mutable_start()->set_epoch(epoch);
    command.mutable_start()->set_executable("/bin/worker");
    if (more) more(command.mutable_start());
    agent_->OnCommand(command);
  }
  void Stop(const std::string& id, uint64_t epoch, int64_t grace_ms) {
    v1::NodeCommand command;
    command.mutable_stop()->set_actor_id(id);
    command.mutable_stop()->set_epoch(epoch);
    command.mutable_stop()->set_grace_ms(grace_ms);
    agent_->OnCommand(command);
  }
  void Ack() {
    v1::NodeCommand command;
    for (const auto& event : uplink_.events) {
      if (event.has_beat()) command.mutable_ack()->set_sequence(event.beat().sequence());
    }
    agent_->OnCommand(command);
  }
  static v1::ActorReport Of(const std::string& id, uint64_t epoch, int64_t pid) {
    v1::ActorReport report;
    report.set_actor_id(id);
    report.set_epoch(epoch);
    report.set_pid(pid);
    return report;
  }
  void Started(ShimId shim, const std::string& id, uint64_t epoch, int64_t pid) {
    v1::ShimReport message;
    *message.add_actors() = Of(id, epoch, pid);
    message.mutable_actors(0)->mutable_started()->set_pid(pid);
    agent_->OnShim(shim, message);
  }
  void Exited(ShimId shim, const std::string& id, uint64_t epoch, int code) {
    v1::ShimReport message;
    *message.add_actors() = Of(id, epoch, 100);
    message.mutable_actors(0)->mutable_exited()->set_exit_code(code);
    agent_->OnShim(shim, message);
    agent_->OnShimGone(shim, "exited with code 0");
  }
  void RunFor(double seconds) { loop_->RunFor(absl::Seconds(seconds)); }

  std::unique_ptr<EventLoop> loop_;
  FakeProcesses processes_;
  FakeUplink uplink_;
  FakeHost host_;
  std::unique_ptr<AgentCore> agent_;
  std::optional<absl::Status> done_;
};

}  // namespace manta::node

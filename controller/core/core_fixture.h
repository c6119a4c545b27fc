// What tests of the head's logic share: a core on a journal in memory, fake agents, and requests in a line. For tests
// only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/core/core.h"
#include "controller/core/fake_node.h"
#include "controller/core/memory_journal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller::core {

class CoreTest : public ::testing::Test {
 protected:
  ~CoreTest() override {
    EXPECT_THAT(core_ == nullptr ? std::vector<std::string>() : core_->CheckInvariants(), ::testing::IsEmpty());
    core_.reset();
  }
  void Make(CoreOptions options = {}) {
    options.incarnation = ++incarnation_;
    options.unix_ms = [this] { return absl::ToUnixMillis(loop_->Now()); };
    core_ = std::make_unique<Core>(*loop_, journal_, jobs_, std::move(options), journal_.disk().Rows());
    events_.clear();
    subscription_ = core_->OnGroupEvent([this](const GroupEvent& event) { events_.push_back(event); });
  }
  // kill -9 of the head: agents hear nothing more of it.
  void Crash() {
    subscription_.Reset();
    core_.reset();
    for (auto& node : nodes_) node->Forsake();
  }
  std::shared_ptr<FakeNode> Node(const std::string& name, int cpu_slots, int gpus = 0) {
    nodes_.push_back(std::make_shared<FakeNode>(*loop_, name, cpu_slots, gpus));
    EXPECT_TRUE(nodes_.back()->Join(*core_).ok());
    return nodes_.back();
  }
  static v1::GroupRequest Request(const std::string& role, int ranks, int cpus,
                                  v1::RestartPolicy::Kind policy = v1::RestartPolicy::FAIL_JOB) {
    v1::GroupRequest request;
    request.set_role(role);
    request.set_executable("/bin/worker");
    request.mutable_placement()->set_repeat(ranks);
    request.mutable_placement()->set_deadline_ms(30000);
    request.mutable_placement()->add_bundles()->set_cpu_slots(cpus);
    request.mutable_restart()->set_kind(policy);
    request.mutable_restart()->set_backoff_ms(1000);
    return request;
  }
  template <typename T>
  Answer<T> Into(std::shared_ptr<std::optional<absl::StatusOr<T>>> result) {
    return [result](absl::StatusOr<T> answer) { result->emplace(std::move(answer)); };
  }
  template <typename T>
  absl::StatusOr<T> Await(const std::shared_ptr<std::optional<absl::StatusOr<T>>>& result,
                          absl::Duration patience = absl::Minutes(5)) {
    for (absl::Duration waited; waited < patience && !result->has_value(); waited += absl::Milliseconds(10)) {
      loop_->RunFor(absl::Milliseconds(10));
    }
    if (!result->has_value()) return absl::InternalError("no answer came");
    return **result;
  }
  template <typename T>
  static std::shared_ptr<std::optional<absl::StatusOr<T>>> Slot() {
    return std::make_shared<std::optional<absl::StatusOr<T>>>();
  }
  absl::StatusOr<v1::GroupReply> Create(const v1::GroupRequest& request) {
    auto slot = Slot<v1::GroupReply>();
    core_->CreateGroup(request, Into<v1::GroupReply>(slot));
    return Await(slot);
  }
  absl::Status Remove(const std::string& role, const std::string& job = kOnlyJob) {
    auto slot = Slot<v1::Done>();
    core_->RemoveGroup({job, role}, absl::Seconds(1), Into<v1::Done>(slot));
    return Await(slot).status();
  }
  absl::StatusOr<v1::PlacementReply> Place(const v1::PlacementRequest& request) {
    auto slot = Slot<v1::PlacementReply>();
    core_->CreatePlacement(request, Into<v1::PlacementReply>(slot));
    return Await(slot);
  }
  v1::GroupInfo GroupOf(const std::string& role) {
    v1::ListRequest request;
    request.set_groups(true);
    request.set_role(role);
    v1::ListReply reply;
    core_->List(request, &reply);
    return reply.groups().empty() ? v1::GroupInfo() : reply.groups(0);
  }
  std::string StateOf(const std::string& role) { return GroupOf(role).state(); }
  void Run(double seconds) { loop_->RunFor(absl::Seconds(seconds)); }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
  MemoryJournal journal_{*loop_};
  JobPort* jobs_ = nullptr;
  std::unique_ptr<Core> core_;
  std::vector<std::shared_ptr<FakeNode>> nodes_;
  std::vector<GroupEvent> events_;
  Subscription subscription_;
  uint64_t incarnation_ = 0;
};

}  // namespace manta::controller::core

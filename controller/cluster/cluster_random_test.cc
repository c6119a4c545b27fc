// Random histories of a cluster in simulated time: groups come and go while actors die or fall silent and nodes are
// lost and come back. Whatever happens, every task ends, every failure names a reason, and no slot is lost or given
// twice.
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/fake_ports.h"
#include "gtest/gtest.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

class History {
 public:
  explicit History(uint64_t seed) : random_(seed), actors_(*loop_), cluster_(*loop_, actors_, Options()) {
    cluster_.OnGroupFailed([this](const Group& group, const absl::Status& status) {
      EXPECT_TRUE(failed_.insert({group.role(), group.epoch()}).second) << "told twice";
      const v1::ErrorInfo info = GetErrorInfo(status);
      EXPECT_TRUE(info.origin() == v1::ORIGIN_WORKER_DIED || info.origin() == v1::ORIGIN_NODE_LOST) << status;
    });
    for (int i = 0, n = 1 + Below(4); i < n; ++i) Join(absl::StrCat("node-", i));
  }

  void Run() {
    for (int i = 0; i < 60; ++i) {
      loop_->RunFor(absl::Milliseconds(Below(4000)));
      Act();
      CheckSlots();
    }
    bool stopped = false;
    Spawn(*loop_, cluster_.StopAll(absl::Seconds(1)), [&](const absl::Status&) { stopped = true; });
    loop_->RunFor(absl::Minutes(3));
    EXPECT_TRUE(stopped);
    EXPECT_EQ(pending_, 0) << "tasks that never ended";
    for (const auto& group : groups_) EXPECT_FALSE(group->health().ok()) << group->role();
  }

 private:
  static Cluster::Options Options() { return {.run_dir = "/nonexistent", .expected_nodes = 1}; }
  int Below(int n) { return static_cast<int>(random_.NextBelow(static_cast<uint64_t>(n))); }

  void Join(const std::string& name) {
    auto node =
        std::make_shared<FakeNode>(*loop_, cluster_, name, capacity_[name] = 1 + Below(4), gpus_[name] = Below(3));
    if (node->Join().ok()) nodes_[name] = node;
  }
  std::shared_ptr<FakeNode> AnyNode() {
    if (nodes_.empty()) return nullptr;
    return std::next(nodes_.begin(), Below(static_cast<int>(nodes_.size())))->second;
  }

  void Act() {
    const auto node = AnyNode();
    switch (Below(10)) {
      case 0:
      case 1:
      case 2: {
        ++pending_;
        GroupSpec spec{.role = absl::StrCat("role", Below(4)),
                       .num_ranks = 1 + Below(4),
                       .executable = "/x",
                       .cpu_slots_per_rank = Below(3),
                       .gpus_per_rank = Below(2)};
        Spawn(*loop_, cluster_.StartGroup(spec), [this](absl::StatusOr<std::shared_ptr<Group>> group) {
          --pending_;
          if (group.ok()) groups_.push_back(*group);
        });
        break;
      }
      case 3:
      case 4:
        if (!groups_.empty()) {
          ++pending_;
          Spawn(*loop_, cluster_.StopGroup(groups_[Below(static_cast<int>(groups_.size()))], absl::Seconds(1)),
                [this](const absl::Status&) { --pending_; });
        }
        break;
      case 5:
        if (node && !node->started.empty()) {
          const auto& start = node->started[Below(static_cast<int>(node->started.size()))];
          node->Exit(start.actor_id(), start.epoch(), Below(2) == 0 ? 1 : -1, 0);
        }
        break;
      case 6:
        if (!groups_.empty()) {
          const auto& members = groups_[Below(static_cast<int>(groups_.size()))]->members();
          const std::string address = members[Below(static_cast<int>(members.size()))].address;
          if (Below(2) == 0) {
            actors_.Silence(address);
          } else {
            actors_.Break(address);
          }
        }
        break;
      case 7:
        if (node) node->announces = Below(3) != 0;
        break;
      case 8:
        if (node && Below(3) == 0) {
          for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
            if (it->second != node) continue;
            cluster_.NodeGone(it->first, "killed");
            nodes_.erase(it);
            break;
          }
        }
        break;
      default:
        Join(absl::StrCat("node-", Below(5)));
    }
  }

  void CheckSlots() {
    v1::GetStatusReply status;
    cluster_.FillStatus(&status);
    std::map<std::string, std::set<int>> seen;
    for (const auto& node : status.nodes()) {
      if (!node.alive()) continue;
      EXPECT_GE(node.cpu_slots_used(), 0);
      EXPECT_LE(node.cpu_slots_used(), node.cpu_slots());
      EXPECT_LE(node.gpus_used(), node.gpus_size());
      if (status.actors_size() == 0) {
        EXPECT_EQ(node.cpu_slots_used(), 0) << "a slot was lost";
        EXPECT_EQ(node.gpus_used(), 0) << "a GPU was lost";
      }
    }
  }

  RandomStream random_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
  FakeActors actors_;
  Cluster cluster_;
  std::map<std::string, int> capacity_, gpus_;
  std::map<std::string, std::shared_ptr<FakeNode>> nodes_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::set<std::pair<std::string, uint64_t>> failed_;
  int pending_ = 0;
};

TEST(ClusterRandom, EveryHistoryEndsWell) {
  spdlog::set_level(spdlog::level::off);
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    History(seed).Run();
    if (HasFailure()) break;
  }
  spdlog::set_level(spdlog::level::info);
}

}  // namespace
}  // namespace manta::controller

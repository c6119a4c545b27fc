// The head at the size of a large cluster: 1,000 nodes with 8 GPUs, 8,000 workers. Real time and memory, so the limits
// are those that it is held to; what is seen is printed.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/event_loop.h"
#include "controller/core/core.h"
#include "controller/core/memory_journal.h"
#include "gtest/gtest.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {
namespace {

double Ms(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

double ResidentMb() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0, resident = 0;
  statm >> pages >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// An agent that remembers nothing but what it has to answer.
class LeanNode : public AgentPort {
 public:
  LeanNode(EventLoop& loop, Core& core, int index, std::chrono::steady_clock::time_point* last_start)
      : loop_(loop), core_(core), last_start_(last_start) {
    v1::NodeHello hello;
    hello.set_node(absl::StrCat("node-", index));
    hello.set_host_id(hello.node());
    hello.set_incarnation(1 + index);
    hello.set_cpu_slots(64);
    hello.set_memory_bytes(1ull << 40);
    hello.set_address(absl::StrCat("10.0.", index / 256, ".", index % 256));
    for (int gpu = 0; gpu < 8; ++gpu) {
      v1::Gpu& added = *hello.add_gpus();
      added.set_index(gpu);
      added.set_uuid(absl::StrCat("GPU-", index, "-", gpu, "-0123456789abcdef"));
      added.set_name("NVIDIA H200");
      added.set_memory_bytes(140ull << 30);
      added.set_nvlink_domain(absl::StrCat("rack-", index / 9));
    }
    hello_ = std::move(hello);
  }
  void Join(std::shared_ptr<LeanNode> self) { session_ = core_.NodeJoined(hello_, std::move(self)).value(); }
  void Send(const v1::NodeCommand& command) override {
    if (command.has_start()) {
      ++starts;
      *last_start_ = std::chrono::steady_clock::now();
      loop_.Post([this, id = command.start().actor_id(), epoch = command.start().epoch()] {
        v1::NodeEvent event;
        v1::ActorReport& report = *event.mutable_report();
        report.set_actor_id(id);
        report.set_epoch(epoch);
        report.set_pid(12345);
        report.mutable_worker()->mutable_ready()->set_address(absl::StrCat("10.0.0.1:", 20000 + starts));
        core_.OnNodeEvent(session_, event);
      });
    } else if (command.has_stop()) {
      loop_.Post([this, id = command.stop().actor_id(), epoch = command.stop().epoch()] {
        v1::NodeEvent event;
        event.mutable_report()->set_actor_id(id);
        event.mutable_report()->set_epoch(epoch);
        event.mutable_report()->mutable_exited()->set_actor_id(id);
        event.mutable_report()->mutable_exited()->set_epoch(epoch);
        event.mutable_report()->mutable_exited()->set_asked_to_stop(true);
        core_.OnNodeEvent(session_, event);
      });
    }
  }
  void Close(const absl::Status&) override {}
  void Beat(const std::function<void(v1::NodeBeat*)>& fill) {
    v1::NodeEvent event;
    event.mutable_beat()->set_sequence(++sequence_);
    fill(event.mutable_beat());
    core_.OnNodeEvent(session_, event);
  }
  int starts = 0;

 private:
  EventLoop& loop_;
  Core& core_;
  v1::NodeHello hello_;
  uint64_t session_ = 0, sequence_ = 0;
  std::chrono::steady_clock::time_point* const last_start_;
};

TEST(Scale, AThousandNodesAndEightThousandWorkers) {
  spdlog::set_level(spdlog::level::off);
  const auto loop = EventLoop::Simulated();
  MemoryJournal journal(*loop);
  const double before_mb = ResidentMb();
  Core core(*loop, journal, nullptr, {.run_dir = "/run"}, {});
  std::vector<std::shared_ptr<LeanNode>> nodes;
  std::chrono::steady_clock::time_point last_start;
  for (int i = 0; i < 1000; ++i) nodes.push_back(std::make_shared<LeanNode>(*loop, core, i, &last_start));

  auto clock = std::chrono::steady_clock::now();
  for (auto& node : nodes) {
    node->Join(node);
    loop->RunFor(absl::ZeroDuration());
  }
  const double join_ms = Ms(clock);
  EXPECT_EQ(core.num_nodes(), 1000);
  EXPECT_LT(join_ms, 2000);

  const auto group = [&](const std::string& role, int ranks) {
    v1::GroupRequest request;
    request.set_role(role);
    request.set_executable("/opt/manta/bin/manta-train");
    request.mutable_placement()->set_repeat(ranks);
    request.mutable_placement()->add_bundles()->set_gpus(1);
    request.mutable_placement()->mutable_bundles(0)->set_cpu_slots(4);
    return request;
  };
  bool ready = false;
  clock = std::chrono::steady_clock::now();
  core.CreateGroup(group("gang", 512), [&](absl::StatusOr<v1::GroupReply> reply) {
    EXPECT_TRUE(reply.ok()) << reply.status();
    ready = true;
  });
  const auto sent = [&] {
    int starts = 0;
    for (const auto& node : nodes) starts += node->starts;
    return starts == 512;
  };
  for (int round = 0; round < 100 && !sent(); ++round) loop->RunFor(absl::ZeroDuration());
  const double ordered_ms = std::chrono::duration<double, std::milli>(last_start - clock).count();
  while (!ready) loop->RunFor(absl::Milliseconds(1));
  const double ready_ms = Ms(clock);
  // Placing alone: a placement of the same size, asked for and acknowledged. The middle of nine: the machine has
  // others.
  v1::PlacementRequest placement;
  placement.set_repeat(512);
  placement.add_bundles()->set_gpus(1);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    uint64_t id = 0;
    clock = std::chrono::steady_clock::now();
    core.CreatePlacement(placement, [&](absl::StatusOr<v1::PlacementReply> reply) {
      ASSERT_TRUE(reply.ok()) << reply.status();
      times.push_back(Ms(clock));
      id = reply->id();
    });
    while (id == 0) loop->RunFor(absl::ZeroDuration());
    core.RemovePlacement(id, nullptr);
    loop->RunFor(absl::Milliseconds(1));
  }
  std::sort(times.begin(), times.end());
  const double placed_ms = times[times.size() / 2];
  EXPECT_LT(placed_ms, 10);

  int groups = 0;
  for (int left = 8000 - 512, i = 0; left > 0; ++i) {
    const int ranks = std::min(left, 64);
    left -= ranks;
    core.CreateGroup(group(absl::StrCat("gen", i), ranks), [&](absl::StatusOr<v1::GroupReply> reply) {
      EXPECT_TRUE(reply.ok()) << reply.status();
      ++groups;
    });
  }
  loop->RunFor(absl::Milliseconds(100));
  EXPECT_EQ(groups, (8000 - 512 + 63) / 64);
  int starts = 0;
  for (const auto& node : nodes) starts += node->starts;
  EXPECT_EQ(starts, 8000);

  clock = std::chrono::steady_clock::now();
  v1::ListRequest everything;
  everything.set_actors(true);
  v1::ListReply actors;
  core.List(everything, &actors);
  for (int second = 0; second < 5; ++second) {
    int next = 0;
    for (auto& node : nodes) {
      node->Beat([&](v1::NodeBeat* beat) {
        for (int k = 0; k < 8; ++k, ++next) {
          v1::ActorReport& report = *beat->add_reports();
          report.set_actor_id(actors.actors(next).actor_id());
          report.set_epoch(actors.actors(next).epoch());
          report.mutable_worker()->mutable_beat()->set_completed(second);
        }
      });
    }
    loop->RunFor(absl::Seconds(1));
  }
  const double beats_ms = Ms(clock) / 5;
  actors.Clear();
  malloc_trim(0);
  const double mb = ResidentMb();
  EXPECT_LT(mb, 200);
  EXPECT_TRUE(core.CheckInvariants().empty());

  bool stopped = false;
  clock = std::chrono::steady_clock::now();
  for (int i = 0, left = 8000 - 512; left > 0; ++i, left -= 64) {
    core.RemoveGroup({kOnlyJob, absl::StrCat("gen", i)}, absl::Seconds(1), nullptr);
  }
  core.RemoveGroup({kOnlyJob, "gang"}, absl::Seconds(1), [&](absl::StatusOr<v1::Done> done) { stopped = done.ok(); });
  loop->RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(stopped);
  const double stop_ms = Ms(clock);
  std::printf("1,000 nodes x 8 GPUs joined: %.0f ms\n", join_ms);
  std::printf(
      "512 GPUs: placed and acknowledged %.2f ms; group placed, journalled and its starts sent %.2f ms; ready %.2f "
      "ms\n",
      placed_ms, ordered_ms, ready_ms);
  std::printf(
      "8,000 workers: %.1f MB resident with the 1,000 fake agents and the journal (%.1f before); "
      "a second's beats of all %.1f ms; all stopped in %.0f ms\n",
      mb, before_mb, beats_ms, stop_ms);
}

TEST(Scale, PlacementsInAPipeline) {
  const auto loop = EventLoop::Simulated();
  MemoryJournal journal(*loop);
  Core core(*loop, journal, nullptr, {}, {});
  std::chrono::steady_clock::time_point last_start;
  std::vector<std::shared_ptr<LeanNode>> nodes;
  for (int i = 0; i < 8; ++i) {
    nodes.push_back(std::make_shared<LeanNode>(*loop, core, i, &last_start));
    nodes.back()->Join(nodes.back());
  }
  int made = 0, removed = 0;
  const int wanted = 5000;
  const std::function<void()> make = [&] {
    v1::PlacementRequest request;
    request.add_bundles()->set_cpu_slots(1);
    core.CreatePlacement(request, [&](absl::StatusOr<v1::PlacementReply> reply) {
      ASSERT_TRUE(reply.ok()) << reply.status();
      core.RemovePlacement(reply->id(), [&](absl::StatusOr<v1::Done> done) {
        ASSERT_TRUE(done.ok());
        ++removed;
        if (made < wanted) ++made, make();
      });
    });
  };
  const auto clock = std::chrono::steady_clock::now();
  for (; made < 256; ++made) make();
  while (removed < wanted) loop->RunFor(absl::Milliseconds(1));
  const double ms = Ms(clock);
  std::printf("placements made and removed, 256 at a time: %.0f/s of the core's own work\n", wanted / ms * 1000);
  EXPECT_LT(ms, 5000);
}

}  // namespace
}  // namespace manta::controller::core

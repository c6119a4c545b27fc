// Explicit placements, the queue, jobs and draining.
#include "controller/core/core_fixture.h"

namespace manta::controller::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FakeJobs : public JobPort {
 public:
  void Run(const JobStart& start) override { runs.push_back(start); }
  void Stop(const std::string& job, const absl::Status& reason) override { stops.emplace_back(job, reason); }
  std::vector<JobStart> runs;
  std::vector<std::pair<std::string, absl::Status>> stops;
};

class CoreJobs : public CoreTest {
 protected:
  CoreJobs() { jobs_ = &fake_jobs_; }
  absl::StatusOr<v1::JobInfo> Submit(const std::string& name, const std::string& key, int priority = 0) {
    v1::SubmitRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_priority(priority);
    request.set_run_dir("/runs/" + name);
    auto slot = Slot<v1::JobInfo>();
    core_->SubmitJob(request, Into<v1::JobInfo>(slot));
    return Await(slot);
  }
  v1::JobInfo JobOf(const std::string& id) {
    v1::ListRequest request;
    request.set_jobs(true);
    request.set_job(id);
    v1::ListReply reply;
    core_->List(request, &reply);
    return reply.jobs().empty() ? v1::JobInfo() : reply.jobs(0);
  }
  static v1::PlacementRequest Room(int ranks, int cpus, int64_t deadline_ms = 0) {
    v1::PlacementRequest request;
    request.set_repeat(ranks);
    request.add_bundles()->set_cpu_slots(cpus);
    request.set_deadline_ms(deadline_ms);
    return request;
  }
  FakeJobs fake_jobs_;
};

TEST_F(CoreJobs, PlacementsAreHeldUntilTheyAreRemoved) {
  Make();
  auto node = Node("n0", 4);
  v1::PlacementRequest request = Room(3, 1);
  request.set_key("k");
  const auto first = Place(request).value();
  EXPECT_EQ(first.ranks_size(), 3);
  EXPECT_EQ(core_->free_cpu_slots(), 1);
  EXPECT_EQ(Place(request).value().id(), first.id());                                  // asked again
  EXPECT_EQ(Place(Room(2, 1)).status().code(), absl::StatusCode::kResourceExhausted);  // now or not at all
  EXPECT_EQ(Place(Room(2, 1, 1000)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Place(Room(9, 1, 1000)).status().code(), absl::StatusCode::kFailedPrecondition);
  // A group on it.
  v1::GroupRequest group = Request("train", 3, 1);
  group.set_placement_id(first.id());
  EXPECT_TRUE(Create(group).ok());
  auto slot = Slot<v1::Done>();
  core_->RemovePlacement(first.id(), Into<v1::Done>(slot));
  EXPECT_EQ(Await(slot).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Remove("train").ok());
  EXPECT_EQ(core_->free_cpu_slots(), 1);
  for (int i = 0; i < 2; ++i) {  // again is the same
    auto again = Slot<v1::Done>();
    core_->RemovePlacement(first.id(), Into<v1::Done>(again));
    EXPECT_TRUE(Await(again).ok());
  }
  EXPECT_EQ(core_->free_cpu_slots(), 4);
  EXPECT_TRUE(journal_.disk().rows.empty());
}

TEST_F(CoreJobs, AFullDiskRefusesAndLosesNothing) {
  Make();
  auto node = Node("n0", 4);
  ASSERT_TRUE(Create(Request("train", 1, 1)).ok());
  journal_.set_health(absl::ResourceExhaustedError("journal: no space left on the device"));
  EXPECT_EQ(Place(Room(1, 1)).status().code(), absl::StatusCode::kResourceExhausted);
  node->Exit("train-0", node->EpochOf("train-0"), -1, 9);  // is noticed all the same
  Run(1);
  EXPECT_EQ(StateOf("train"), "FAILED");
  EXPECT_EQ(Remove("train").code(), absl::StatusCode::kResourceExhausted);
  journal_.set_health(absl::OkStatus());
  EXPECT_TRUE(Remove("train").ok());
  EXPECT_TRUE(Place(Room(1, 1)).ok());
  // Accepted just before: acknowledged once it is safe.
  auto slot = Slot<v1::PlacementReply>();
  core_->CreatePlacement(Room(1, 1), Into<v1::PlacementReply>(slot));
  Run(0);
  journal_.set_health(absl::ResourceExhaustedError("journal: no space left on the device"));
  Run(10);
  EXPECT_FALSE(slot->has_value());
  EXPECT_EQ(Place(Room(1, 1)).status().code(), absl::StatusCode::kResourceExhausted);
  journal_.set_health(absl::OkStatus());
  EXPECT_TRUE(Await(slot).ok());
}

TEST_F(CoreJobs, AJobRunsAndItsGroupsGoWithIt) {
  Make();
  auto node = Node("n0", 4);
  EXPECT_EQ(Submit("grpo", "a").value().job(), "grpo");
  EXPECT_EQ(Submit("grpo", "a").value().job(), "grpo");  // the same
  EXPECT_EQ(Submit("grpo", "b").value().job(), "grpo-2");
  EXPECT_EQ(Submit("no/slash", "c").status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(fake_jobs_.runs.size(), 2u);
  EXPECT_FALSE(fake_jobs_.runs[0].resumed);
  v1::GroupRequest train = Request("train", 1, 1), service = Request("service", 1, 1);
  train.mutable_placement()->set_job("grpo");
  service.mutable_placement()->set_job("grpo");
  service.set_detached(true);
  ASSERT_TRUE(Create(train).ok());
  ASSERT_TRUE(Create(service).ok());
  EXPECT_EQ(node->started[0].actor_id(), "grpo/train-0");
  EXPECT_EQ(node->started[0].log_path(), "/runs/grpo/logs/train-0.log");
  auto stopped = Slot<v1::Done>();
  core_->StopJob("grpo", "enough", Into<v1::Done>(stopped));
  Run(0.1);
  ASSERT_EQ(fake_jobs_.stops.size(), 1u);
  EXPECT_EQ(fake_jobs_.stops[0].second.message(), "stopped: enough");
  EXPECT_FALSE(stopped->has_value());
  core_->JobEnded("grpo", fake_jobs_.stops[0].second);
  EXPECT_TRUE(Await(stopped).ok());
  EXPECT_EQ(JobOf("grpo").state(), "ENDED");
  EXPECT_EQ(StateOf("train"), "");
  EXPECT_EQ(StateOf("service"), "READY");
}

TEST_F(CoreJobs, ProgramsThatAreNoActorsEndWhenTheirWorkIsDone) {
  Make();
  auto node = Node("n0", 4);
  ASSERT_TRUE(Submit("batch", "a").ok());
  v1::GroupRequest work = Request("work", 2, 1), check = Request("check", 1, 1);
  for (v1::GroupRequest* request : {&work, &check}) {
    request->mutable_placement()->set_job("batch");
    request->set_plain(true);
  }
  node->announces = false;
  const auto made = Create(work).value();
  ASSERT_TRUE(Create(check).ok());
  node->Exit("batch/work-0", made.epoch(), 0, 0);
  Run(0.1);
  EXPECT_EQ(StateOf("work"), "READY");
  EXPECT_EQ(GroupOf("work").ranks(0).state(), v1::ACTOR_STATE_STOPPED);
  // One that has ended well is not missed by the next head either.
  Crash();
  Make();
  ASSERT_TRUE(node->Join(*core_).ok());
  Run(0.1);
  EXPECT_EQ(StateOf("work"), "READY");
  node->Exit("batch/work-1", made.epoch(), 0, 0);
  Run(0.1);
  EXPECT_EQ(StateOf("work"), "");
  EXPECT_EQ(events_.back().kind, GroupEvent::kEnded);
  EXPECT_EQ(core_->free_cpu_slots(), 3);
  // Asked for again after yet another crash, it is not run again.
  Crash();
  Make();
  ASSERT_TRUE(node->Join(*core_).ok());
  Run(0.1);
  const size_t starts = node->started.size();
  const auto again = Create(work).value();
  EXPECT_TRUE(again.adopted());
  EXPECT_EQ(again.ranks_size(), 0);
  EXPECT_EQ(node->started.size(), starts);
  // A code other than 0 is a failure.
  node->Exit("batch/check-0", GroupOf("check").epoch(), 3, 0);
  Run(0.1);
  EXPECT_EQ(StateOf("check"), "FAILED");
}

TEST_F(CoreJobs, PriorityComesFirstAndAJobsGroupsStayTogether) {
  Make();
  auto node = Node("n0", 4);
  ASSERT_TRUE(Submit("old", "").ok());
  ASSERT_TRUE(Submit("young", "").ok());
  ASSERT_TRUE(Submit("urgent", "", 5).ok());
  std::vector<std::string> ready;
  const auto start = [&](const std::string& job, const std::string& role, int ranks) {
    v1::GroupRequest request = Request(role, ranks, 1);
    request.mutable_placement()->set_job(job);
    request.mutable_placement()->set_deadline_ms(3600'000);
    core_->CreateGroup(request, [&, name = job + "/" + role](absl::StatusOr<v1::GroupReply> reply) {
      if (reply.ok()) ready.push_back(name);
    });
  };
  start("old", "train", 2);
  start("old", "gen", 2);
  Run(1);
  start("young", "train", 2);
  start("young", "gen", 2);
  start("urgent", "train", 3);
  Run(1);
  EXPECT_THAT(ready, ElementsAre("old/train", "old/gen"));
  EXPECT_EQ(JobOf("young").state(), "QUEUED");
  EXPECT_THAT(JobOf("young").waits_for(), HasSubstr("waits behind urgent/train"));
  core_->JobEnded("old", absl::OkStatus());
  Run(1);
  EXPECT_THAT(ready, ElementsAre("old/train", "old/gen", "urgent/train"));
  core_->JobEnded("urgent", absl::OkStatus());
  Run(1);
  EXPECT_EQ(ready.size(), 5u);
}

TEST_F(CoreJobs, ADrainedNodeIsLeft) {
  Make();
  auto a = Node("a", 2);
  auto b = Node("b", 2);
  ASSERT_TRUE(Create(Request("gen", 1, 1, v1::RestartPolicy::REPLACE_ONE)).ok());
  ASSERT_TRUE(Create(Request("train", 1, 1, v1::RestartPolicy::RESTART_GROUP)).ok());
  ASSERT_EQ(GroupOf("gen").ranks(0).node(), "a");
  ASSERT_EQ(GroupOf("train").ranks(0).node(), "a");
  v1::DrainRequest request;
  request.add_nodes("a");
  request.set_wait(true);
  auto slot = Slot<v1::Done>();
  core_->Drain(request, Into<v1::Done>(slot));
  EXPECT_TRUE(Await(slot).ok());
  Run(2);
  EXPECT_EQ(GroupOf("gen").ranks(0).node(), "b");
  EXPECT_EQ(GroupOf("train").ranks(0).node(), "b");
  EXPECT_EQ(StateOf("train"), "READY");
  EXPECT_EQ(GroupOf("train").restarts(), 0);  // that was planned
  EXPECT_THAT(std::string(Place(Room(3, 1)).status().message()), HasSubstr("1 node drained"));
  // What cannot move ends at the deadline.
  v1::DrainRequest both = request;
  both.add_nodes("b");
  both.set_deadline_ms(5000);
  ASSERT_TRUE(Remove("gen").ok());
  auto late = Slot<v1::Done>();
  core_->Drain(both, Into<v1::Done>(late));
  Run(1);
  EXPECT_FALSE(late->has_value());
  EXPECT_TRUE(Await(late).ok());
  EXPECT_NE(StateOf("train"), "READY");
  request.set_undo(true);
  request.set_wait(false);
  auto undone = Slot<v1::Done>();
  core_->Drain(request, Into<v1::Done>(undone));
  EXPECT_TRUE(Await(undone).ok());
  Run(10);
  EXPECT_EQ(StateOf("train"), "READY");
  request.set_nodes(0, "nowhere");
  auto unknown = Slot<v1::Done>();
  core_->Drain(request, Into<v1::Done>(unknown));
  EXPECT_EQ(Await(unknown).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CoreJobs, JobsAreRunAgainByTheNextHead) {
  Make();
  ASSERT_TRUE(Submit("grpo", "a").ok());
  ASSERT_TRUE(Submit("sft", "b").ok());
  auto stop = Slot<v1::Done>();
  core_->StopJob("sft", "", Into<v1::Done>(stop));
  Run(1);
  fake_jobs_.runs.clear();
  Crash();
  Make();
  Run(1);
  ASSERT_EQ(fake_jobs_.runs.size(), 1u);
  EXPECT_EQ(fake_jobs_.runs[0].job, "grpo");
  EXPECT_TRUE(fake_jobs_.runs[0].resumed);
  EXPECT_EQ(JobOf("grpo").head_restarts(), 1);
  EXPECT_EQ(JobOf("sft").state(), "ENDED");
  EXPECT_EQ(Submit("grpo", "a").value().job(), "grpo");  // the same one
}

}  // namespace
}  // namespace manta::controller::core

#include "controller/core/memory_journal.h"

#include "controller/core/core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller::core {
namespace {

using ::testing::ElementsAre;

TEST(MemoryJournal, CommitsInOrderAndLosesWhatNoCommitHasCarried) {
  const auto loop = EventLoop::Simulated();
  const auto disk = std::make_shared<MemoryJournal::Disk>();
  std::vector<int> done;
  {
    MemoryJournal journal(*loop, disk, [] { return absl::Milliseconds(4); });
    journal.Put(Journal::Kind::kGroup, "a", "1");
    journal.Put(Journal::Kind::kGroup, "b", "1");
    journal.WhenDurable(2, [&] { done.push_back(2); });
    journal.WhenDurable(1, [&] { done.push_back(1); });
    journal.WhenDurable(0, [&] { done.push_back(0); });
    loop->RunFor(absl::Milliseconds(1));
    EXPECT_THAT(done, ElementsAre(0));
    EXPECT_EQ(journal.durable_sequence(), 0u);
    loop->RunFor(absl::Milliseconds(4));
    EXPECT_THAT(done, ElementsAre(0, 1, 2));
    EXPECT_EQ(disk->commits, 1u);
    journal.Erase(Journal::Kind::kGroup, "a");
    loop->RunFor(absl::Milliseconds(1));
  }
  loop->RunFor(absl::Seconds(1));
  EXPECT_EQ(disk->Rows().size(), 2u);
}

TEST(MemoryJournal, AFullDiskHoldsEverythingBack) {
  const auto loop = EventLoop::Simulated();
  MemoryJournal journal(*loop);
  bool done = false;
  journal.set_health(absl::ResourceExhaustedError("no space"));
  journal.Put(Journal::Kind::kJob, "run", "1");
  journal.WhenDurable(1, [&] { done = true; });
  loop->RunFor(absl::Seconds(1));
  EXPECT_FALSE(done);
  journal.set_health(absl::OkStatus());
  loop->RunFor(absl::Seconds(1));
  EXPECT_TRUE(done);
  EXPECT_EQ(journal.disk().Rows().size(), 1u);
}

}  // namespace
}  // namespace manta::controller::core

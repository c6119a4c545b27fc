#include "controller/journal/sqlite_journal.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "controller/journal/power_loss_vfs.h"
#include "controller/journal/test_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::journal {
namespace {

using Kind = controller::core::Journal::Kind;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs the loop until all that was put is durable; false after `limit`.
bool WaitDurable(EventLoop& loop, SqliteJournal& journal, absl::Duration limit = absl::Seconds(10)) {
  bool durable = false;
  journal.WhenDurable(journal.last_sequence(), [&] {
    durable = true;
    loop.Stop();
  });
  loop.RunFor(limit);
  return durable;
}

TEST(SqliteJournal, ANewHeadFindsWhatTheOldOneKept) {
  TestFolder folder;
  EventLoop loop;
  std::string cluster;
  {
    auto opened = SqliteJournal::Open(folder.file(), loop, {});
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->incarnation, 1u);
    EXPECT_TRUE(opened->entries.empty());
    cluster = opened->cluster_id;
    opened->journal->Put(Kind::kGroup, "train", "epoch 1");
    opened->journal->Put(Kind::kGroup, "train", "epoch 2");
    opened->journal->Put(Kind::kJob, "run", "running");
    opened->journal->Put(Kind::kPlacement, "7", "gone soon");
    opened->journal->Erase(Kind::kPlacement, "7");
    EXPECT_TRUE(WaitDurable(loop, *opened->journal));
  }
  auto opened = SqliteJournal::Open(folder.file(), loop, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.file().parent_path())) {  // nobody else reads them
    EXPECT_EQ(entry.status().permissions() & std::filesystem::perms(077), std::filesystem::perms::none) << entry.path();
  }
  EXPECT_EQ(opened->incarnation, 2u);
  EXPECT_EQ(opened->cluster_id, cluster);
  ASSERT_EQ(opened->entries.size(), 2u);
  EXPECT_EQ(opened->entries[0].kind, Kind::kJob);
  EXPECT_EQ(opened->entries[1].kind, Kind::kGroup);
  EXPECT_EQ(opened->entries[1].key, "train");
  EXPECT_EQ(opened->entries[1].value, "epoch 2");
}

TEST(SqliteJournal, WaitersRunInOrderAndNeverAtOnce) {
  TestFolder folder;
  EventLoop loop;
  auto opened = SqliteJournal::Open(folder.file(), loop, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  SqliteJournal& journal = *opened->journal;
  std::vector<int> ran;
  journal.Put(Kind::kJob, "a", "1");
  const uint64_t first = journal.last_sequence();
  journal.Put(Kind::kJob, "b", "1");
  journal.WhenDurable(journal.last_sequence(), [&] { ran.push_back(2); });
  journal.WhenDurable(first, [&] { ran.push_back(1); });
  journal.WhenDurable(journal.last_sequence(), [&] {
    ran.push_back(3);
    journal.WhenDurable(first, [&] {
      ran.push_back(4);
      loop.Stop();
    });
    EXPECT_EQ(ran.size(), 3u);
  });
  EXPECT_TRUE(ran.empty());
  loop.RunFor(absl::Seconds(10));
  EXPECT_THAT(ran, ElementsAre(1, 2, 3, 4));
}

TEST(SqliteJournal, ACommitCarriesAllThatCameMeanwhile) {
  TestFolder folder;
  PowerLossVfs vfs("group-commit");
  EventLoop loop;
  auto opened = SqliteJournal::Open(folder.file(), loop, {.vfs = vfs.name()});
  ASSERT_TRUE(opened.ok()) << opened.status();
  vfs.sync_delay_ms = 50;
  for (int i = 0; i < 1000; ++i) opened->journal->Put(Kind::kPlacement, absl::StrCat(i), "x");
  EXPECT_TRUE(WaitDurable(loop, *opened->journal));
  EXPECT_LE(opened->journal->stats().commits, 3u);
  EXPECT_EQ(opened->journal->stats().rows, 1000u);
}

TEST(SqliteJournal, ASlowDiskHoldsBackAcknowledgementsAndNothingElse) {
  TestFolder folder;
  PowerLossVfs vfs("slow");
  EventLoop loop;
  auto opened = SqliteJournal::Open(folder.file(), loop, {.max_queued_bytes = 100000, .vfs = vfs.name()});
  ASSERT_TRUE(opened.ok()) << opened.status();
  vfs.sync_delay_ms = 300;
  int durable = 0;
  double worst_put_ms = 0;
  for (int i = 0; i < 2000; ++i) {
    const absl::Time start = absl::Now();
    opened->journal->Put(Kind::kPlacement, absl::StrCat(i), std::string(100, 'x'));
    opened->journal->WhenDurable(opened->journal->last_sequence(), [&] { ++durable; });
    worst_put_ms = std::max(worst_put_ms, absl::ToDoubleMilliseconds(absl::Now() - start));
  }
  EXPECT_EQ(durable, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(opened->journal->health()));
  EXPECT_THAT(std::string(opened->journal->health().message()), HasSubstr("the disk is too slow"));
  EXPECT_TRUE(WaitDurable(loop, *opened->journal));
  EXPECT_EQ(durable, 2000);
  EXPECT_TRUE(opened->journal->health().ok());
  std::printf("longest Put while the disk took 300 ms a sync: %.2f ms\n", worst_put_ms);
}

TEST(SqliteJournal, AFullDiskRefusesThenGoesOn) {
  TestFolder folder;
  PowerLossVfs vfs("full");
  EventLoop loop;
  auto opened = SqliteJournal::Open(folder.file(), loop, {.retry = absl::Milliseconds(20), .vfs = vfs.name()});
  ASSERT_TRUE(opened.ok()) << opened.status();
  SqliteJournal& journal = *opened->journal;
  journal.Put(Kind::kJob, "before", "1");
  EXPECT_TRUE(WaitDurable(loop, journal));
  vfs.full = true;
  journal.Put(Kind::kJob, "during", "1");
  EXPECT_FALSE(WaitDurable(loop, journal, absl::Milliseconds(200)));
  EXPECT_TRUE(absl::IsResourceExhausted(journal.health())) << journal.health();
  EXPECT_EQ(journal.health().message(), absl::StrCat("journal ", folder.file().string(), ": disk full"));
  EXPECT_GT(journal.stats().failures, 2u);
  journal.Put(Kind::kJob, "during", "2");
  vfs.full = false;
  EXPECT_TRUE(WaitDurable(loop, journal));
  EXPECT_TRUE(journal.health().ok());
  opened->journal.reset();
  auto again = SqliteJournal::Open(folder.file(), loop, {});
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->entries.size(), 2u);
  EXPECT_EQ(again->entries[1].value, "2");
}

// 1 MiB for the files of a folder: a file system of its own where the test may mount one, else a limit on their size.
class SmallDisk {
 public:
  explicit SmallDisk(std::filesystem::path folder) : folder_(std::move(folder)) {
    mounted_ = mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=1m") == 0;
    if (mounted_) return;
    getrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = old_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~SmallDisk() {
    if (mounted_) {
      umount2(folder_.c_str(), MNT_DETACH);
    } else {
      setrlimit(RLIMIT_FSIZE, &old_);
    }
  }
  void MakeSpace() {
    if (mounted_) {
      EXPECT_EQ(mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0);
    } else {
      EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &old_), 0);
    }
  }
  const char* kind() const { return mounted_ ? "tmpfs, 1 MiB" : "RLIMIT_FSIZE"; }

 private:
  const std::filesystem::path folder_;
  bool mounted_ = false;
  rlimit old_{};
};

TEST(SqliteJournal, ADiskThatIsReallyFull) {
  TestFolder folder;
  SmallDisk disk(folder.path());
  {
    EventLoop loop;
    auto opened = SqliteJournal::Open(folder.file(), loop, {.retry = absl::Milliseconds(50)});
    ASSERT_TRUE(opened.ok()) << opened.status();
    std::unique_ptr<SqliteJournal> journal = std::move(opened->journal);
    int acknowledged = 0;
    for (; acknowledged < 1000; ++acknowledged) {
      journal->Put(Kind::kPlacement, absl::StrCat("row ", acknowledged), std::string(20000, 'x'));
      if (!WaitDurable(loop, *journal, absl::Milliseconds(500))) break;
    }
    std::printf("%d rows of 20 kB until the disk (%s) was full\n", acknowledged, disk.kind());
    EXPECT_GT(acknowledged, 5);
    EXPECT_LT(acknowledged, 60);
    EXPECT_THAT(std::string(journal->health().message()), AnyOf(HasSubstr("disk full"), HasSubstr("disk I/O error")));
    // A head that is killed now loses nothing that it has acknowledged.
    journal.reset();
    opened = SqliteJournal::Open(folder.file(), loop, {.retry = absl::Milliseconds(50)});
    if (opened.ok()) {
      EXPECT_GE(static_cast<int>(opened->entries.size()), acknowledged);
      journal = std::move(opened->journal);
    } else {  // no room for the new incarnation: said, and nothing is spoiled
      EXPECT_TRUE(absl::IsResourceExhausted(opened.status()) || absl::IsUnavailable(opened.status()))
          << opened.status();
    }
    disk.MakeSpace();
    if (journal == nullptr) {
      opened = SqliteJournal::Open(folder.file(), loop, {});
      ASSERT_TRUE(opened.ok()) << opened.status();
      EXPECT_GE(static_cast<int>(opened->entries.size()), acknowledged);
      journal = std::move(opened->journal);
    }
    journal->Put(Kind::kPlacement, "after", "x");
    EXPECT_TRUE(WaitDurable(loop, *journal));
    EXPECT_TRUE(journal->health().ok());
  }
}

TEST(SqliteJournal, ManyRowsStayBoundedOnDisk) {
  TestFolder folder;
  EventLoop loop;
  auto opened = SqliteJournal::Open(folder.file(), loop, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (int i = 0; i < 200; ++i) {
    for (int j = 0; j < 500; ++j)
      opened->journal->Put(Kind::kPlacement, absl::StrCat(i * 500 + j), std::string(200, 'x'));
    for (int j = 0; j < 500 && i > 0; ++j) opened->journal->Erase(Kind::kPlacement, absl::StrCat((i - 1) * 500 + j));
    ASSERT_TRUE(WaitDurable(loop, *opened->journal));
  }
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) bytes += entry.file_size();
  EXPECT_LT(bytes, 40u << 20);
  std::printf("100,000 rows through, 500 alive: %.1f MiB on disk\n", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace
}  // namespace manta::journal

// What was acknowledged is there after a kill -9 and after a cut of power, at any moment.
//
// The history that is written: for i = 1, 2, 3 ...: row "i" is put, row "i - 10" erased, and "last" set to i. So after
// a crash the table must be exactly the state after some i, and no i smaller than the last acknowledged one.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "absl/strings/numbers.h"
#include "common/base/kill.h"
#include "controller/journal/power_loss_vfs.h"
#include "controller/journal/sqlite_journal.h"
#include "controller/journal/test_folder.h"
#include "gtest/gtest.h"

namespace manta::journal {
namespace {

using Kind = controller::core::Journal::Kind;

constexpr int kAlive = 10;

void WriteStep(SqliteJournal& journal, int i) {
  journal.Put(Kind::kGroup, absl::StrCat(i), std::string(static_cast<size_t>(i % 700), 'x'));
  if (i > kAlive) journal.Erase(Kind::kGroup, absl::StrCat(i - kAlive));
  journal.Put(Kind::kJob, "last", absl::StrCat(i));
}

// The i whose state the entries are, or -1.
int StateOf(const std::vector<controller::core::JournalEntry>& entries) {
  if (entries.empty()) return 0;
  int last = -1;
  for (const auto& entry : entries) {
    if (entry.kind == Kind::kJob && !absl::SimpleAtoi(entry.value, &last)) return -1;
  }
  int rows = 0;
  for (const auto& entry : entries) {
    if (entry.kind != Kind::kGroup) continue;
    int i = 0;
    if (!absl::SimpleAtoi(entry.key, &i) || i > last || i <= last - kAlive) return -1;
    if (entry.value.size() != static_cast<size_t>(i % 700)) return -1;
    ++rows;
  }
  return rows == std::min(last, kAlive) ? last : -1;
}

uint64_t Seed() {
  const char* given = std::getenv("MANTA_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("MANTA_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// Writes steps from `first` on until killed; each acknowledged step's number goes to `acks`.
[[noreturn]] void WriteUntilKilled(const std::filesystem::path& file, int acks) {
  EventLoop loop;
  auto opened = SqliteJournal::Open(file, loop, {});
  if (!opened.ok()) _exit(2);
  SqliteJournal& journal = *opened->journal;
  int i = StateOf(opened->entries);
  if (i < 0) _exit(3);
  std::function<void()> write = [&] {
    for (int n = 0; n < 8; ++n) {
      WriteStep(journal, ++i);
      journal.WhenDurable(journal.last_sequence(), [&, i] {
        if (::write(acks, &i, sizeof(i)) != sizeof(i)) _exit(4);
        if (i % 8 == 0) write();
      });
    }
  };
  // The acknowledgement of a multiple of eight starts the next eight; begin at one.
  while (i % 8 != 0) WriteStep(journal, ++i);
  loop.Post([&] { write(); });
  loop.Run();
  _exit(5);
}

TEST(JournalCrash, NothingAcknowledgedIsLostToAKill) {
  TestFolder folder;
  std::mt19937_64 random(Seed());
  int acknowledged = 0, kills = 0;
  for (; kills < 30; ++kills) {
    int acks[2];
    ASSERT_EQ(pipe2(acks, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) WriteUntilKilled(folder.file(), acks[1]);
    close(acks[1]);
    // Kill it after some number of acknowledgements, and some microseconds more.
    const int patience = static_cast<int>(random() % 200);
    for (int n = 0, i = 0; n < patience && read(acks[0], &i, sizeof(i)) == sizeof(i); ++n) acknowledged = i;
    usleep(static_cast<unsigned>(random() % 3000));
    KillProcess(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    for (int i = 0; read(acks[0], &i, sizeof(i)) == sizeof(i);) acknowledged = i;
    close(acks[0]);
    EventLoop loop;
    auto opened = SqliteJournal::Open(folder.file(), loop, {});
    ASSERT_TRUE(opened.ok()) << opened.status();
    const int state = StateOf(opened->entries);
    ASSERT_GE(state, acknowledged) << "after kill " << kills;
  }
  std::printf("%d kills, %d steps acknowledged, none lost\n", kills, acknowledged);
}

// One process on the disk that forgets: returns how often a cut of power left something else than the rule allows.
int BrokenCuts(PowerLossVfs& vfs, std::mt19937_64& random, int cuts) {
  TestFolder folder;
  EventLoop loop;
  auto opened = SqliteJournal::Open(folder.file(), loop, {.vfs = vfs.name()});
  EXPECT_TRUE(opened.ok()) << opened.status();
  if (!opened.ok()) return cuts;
  SqliteJournal& journal = *opened->journal;
  int broken = 0, i = 0, acknowledged = 0;
  for (int cut = 0; cut < cuts; ++cut) {
    vfs.sync_delay_ms = static_cast<int>(random() % 2);
    const int steps = 1 + static_cast<int>(random() % 40);
    for (int n = 0; n < steps; ++n) {
      WriteStep(journal, ++i);
      journal.WhenDurable(journal.last_sequence(), [&acknowledged, i] { acknowledged = i; });
      if (random() % 2 == 0) loop.RunFor(absl::Microseconds(random() % 2000));
    }
    TestFolder image;
    const int must = acknowledged;
    vfs.PowerCut(image.path(), random(), static_cast<double>(random() % 3) / 2);
    EventLoop other;
    auto after = SqliteJournal::Open(image.file(), other, {});
    const int state = after.ok() ? StateOf(after->entries) : -1;
    if (state < must) ++broken;
  }
  return broken;
}

TEST(JournalCrash, NothingAcknowledgedIsLostToACutOfPower) {
  std::mt19937_64 random(Seed());
  PowerLossVfs vfs("power-loss");
  EXPECT_EQ(BrokenCuts(vfs, random, 150), 0);
}

// The test above can fail: a disk that lies about syncs is found out.
TEST(JournalCrash, ADiskThatLiesIsFoundOut) {
  std::mt19937_64 random(1);
  PowerLossVfs vfs("liar");
  vfs.lies = true;
  EXPECT_GT(BrokenCuts(vfs, random, 10), 0);
}

}  // namespace
}  // namespace manta::journal

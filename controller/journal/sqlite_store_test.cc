#include "controller/journal/sqlite_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "common/base/file.h"
#include "controller/journal/power_loss_vfs.h"
#include "controller/journal/test_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::journal {
namespace {

using ::testing::HasSubstr;

std::map<std::string, std::string> All(SqliteStore& store) {
  std::map<std::string, std::string> all;
  EXPECT_TRUE(store
                  .ReadAll([&](uint8_t kind, std::string_view key, std::string_view value) {
                    all[absl::StrCat(kind, "/", std::string(key))] = std::string(value);
                  })
                  .ok());
  return all;
}

TEST(SqliteStore, KeepsWhatWasCommitted) {
  TestFolder folder;
  std::string id;
  {
    auto store = SqliteStore::Open(folder.file(), {});
    ASSERT_TRUE(store.ok()) << store.status();
    id = (*store)->cluster_id();
    EXPECT_EQ(id.size(), 32u);
    EXPECT_TRUE((*store)->Commit({{{1, "a"}, "x"}, {{2, "a"}, std::string("\0y\xff", 3)}, {{3, ""}, ""}}).ok());
    EXPECT_TRUE((*store)->Commit({{{1, "a"}, std::nullopt}, {{2, "b"}, "z"}, {{9, "absent"}, std::nullopt}}).ok());
  }
  auto store = SqliteStore::Open(folder.file(), {});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->cluster_id(), id);
  EXPECT_EQ(All(**store),
            (std::map<std::string, std::string>{{"2/a", std::string("\0y\xff", 3)}, {"2/b", "z"}, {"3/", ""}}));
}

TEST(SqliteStore, ASecondControllerIsRefusedByName) {
  TestFolder folder;
  auto store = SqliteStore::Open(folder.file(), {});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(SqliteStore::Open(folder.file(), {}).status().message(),
            absl::StrCat("another controller (pid ", getpid(), ") holds ", folder.file().string()));
  // The lock goes with whoever holds it.
  store->reset();
  const pid_t child = fork();
  if (child == 0) {
    auto held = SqliteStore::Open(folder.file(), {});
    kill(getpid(), SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(SqliteStore::Open(folder.file(), {}).ok());
}

TEST(SqliteStore, ADamagedFileIsNeverEmptiedInSilence) {
  TestFolder folder;
  for (int i = 0; i < 2; ++i) {
    auto store = SqliteStore::Open(folder.file(), {});
    ASSERT_TRUE(store.ok()) << store.status();
    RowValues rows;
    for (int j = 0; j < 2000; ++j) rows[{1, absl::StrCat("key ", j)}] = std::string(100, 'x');
    ASSERT_TRUE((*store)->Commit(rows).ok());
  }
  // Two pages in the middle.
  std::fstream file(folder.file(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 * 4);
  file << std::string(8192, '\x5a');
  file.close();
  const std::string before = ReadFile(folder.file()).value();
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = SqliteStore::Open(folder.file(), {}).status();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--discard-journal"));
    EXPECT_EQ(ReadFile(folder.file()).value(), before);
  }
  auto store = SqliteStore::Open(folder.file(), {.discard_damaged = true});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(All(**store).empty());
  EXPECT_EQ((*store)->discarded(), folder.file().string() + ".damaged-1");
  EXPECT_EQ(ReadFile((*store)->discarded()).value(), before);
}

TEST(SqliteStore, AnotherFileIsRefused) {
  TestFolder folder;
  std::ofstream(folder.file()) << std::string(10000, 'n');
  const absl::Status refused = SqliteStore::Open(folder.file(), {}).status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is damaged (file is not a database)"));
  EXPECT_TRUE(SqliteStore::Open(folder.file(), {.discard_damaged = true}).ok());
}

TEST(SqliteStore, AMissingFolderIsNamed) {
  EXPECT_THAT(std::string(SqliteStore::Open("/nowhere/journal.db", {}).status().message()),
              HasSubstr("cannot use /nowhere"));
}

// A log that is cut at any byte of its last transaction: that transaction is there whole or not at all, and all before
// it is there.
TEST(SqliteStore, ACutLogLosesAtMostTheLastTransaction) {
  TestFolder folder;
  PowerLossVfs vfs("cut-log");
  size_t before = 0;
  std::string log;
  const std::filesystem::path wal = folder.file().string() + "-wal";
  TestFolder image;
  {
    auto store = SqliteStore::Open(folder.file(), {.vfs = vfs.name()});
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Commit({{{1, "a"}, "1"}}).ok());
    before = std::filesystem::file_size(wal);
    ASSERT_TRUE((*store)->Commit({{{1, "a"}, "2"}, {{1, "b"}, "2"}}).ok());
    vfs.PowerCut(image.path(), 0, 0);
    log = ReadFile(image.path() / "journal.db-wal").value();
  }
  ASSERT_GT(log.size(), before);
  const std::string main = ReadFile(image.path() / "journal.db").value();
  for (size_t size = before; size <= log.size(); size += size + 64 < log.size() ? 61 : 1) {
    ASSERT_TRUE(WriteFileAtomically(image.file(), main).ok());
    std::ofstream(image.file().string() + "-wal", std::ios::binary) << log.substr(0, size);
    auto store = SqliteStore::Open(image.file(), {});
    ASSERT_TRUE(store.ok()) << store.status();
    const auto all = All(**store);
    if (size == log.size()) {
      EXPECT_EQ(all, (std::map<std::string, std::string>{{"1/a", "2"}, {"1/b", "2"}}));
    } else {
      EXPECT_EQ(all, (std::map<std::string, std::string>{{"1/a", "1"}})) << size;
    }
  }
}

}  // namespace
}  // namespace manta::journal

// SqliteStore: a table of (kind, key) -> value in one SQLite file that survives power loss.
//
// WAL with synchronous=FULL: Commit returns OK only when the rows are on the disk. The file is held by one process at a
// time (a lock file beside it names who), and belongs to one thread: the one that calls. A file that is damaged is
// never repaired or emptied in silence: opening it fails, and only `discard_damaged` moves it aside and begins anew.
//
// Errors: FAILED_PRECONDITION (another process holds it, another schema, a network file system), DATA_LOSS (damaged),
// RESOURCE_EXHAUSTED (no space), UNAVAILABLE (the disk says no). All name the file and what to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/file_lock.h"
#include "controller/journal/write_queue.h"

namespace manta::journal {

class SqliteStore {
 public:
  struct Options {
    bool discard_damaged = false;
    std::string vfs;  // a SQLite VFS by name; empty: the system's
  };
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::filesystem::path& path,
                                                                         const Options& options);
  ~SqliteStore();
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  // Every row, by kind and key.
  [[nodiscard]] absl::Status ReadAll(
      const std::function<void(uint8_t kind, std::string_view key, std::string_view value)>& row);
  // All of it or nothing. After an error the store can be used again.
  [[nodiscard]] absl::Status Commit(const RowValues& rows);

  // Random, of the file's making.
  const std::string& cluster_id() const { return cluster_id_; }
  // Where a damaged file was moved to; empty if none was.
  const std::filesystem::path& discarded() const { return discarded_; }

 private:
  class Database;
  SqliteStore() = default;
  FileLock lock_;  // goes after the database
  std::unique_ptr<Database> db_;
  std::string cluster_id_;
  std::filesystem::path discarded_;
};

}  // namespace manta::journal

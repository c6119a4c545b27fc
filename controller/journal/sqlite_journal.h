// SqliteJournal: the head's memory, on a disk. See core/ports.h for what the core asks of it.
//
// Group commit: a thread of its own writes all that is queued in one transaction and reports the sequence that is now
// durable; meanwhile the next transaction gathers. A commit costs one fsync whatever it holds. Rows that one closure of
// the loop puts are written together or not at all: a crash leaves no half of an event.
//
// A disk that refuses (full, failing) loses nothing and ends nothing: the transaction is kept and tried again every
// `retry`, health() says what is wrong, nothing becomes durable, and so nothing is acknowledged. When the disk takes
// writes again, all goes on.
//
// Belongs to the loop; the loop must outlive it. Destroying it writes what is queued, once, and waits for that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/core/ports.h"

namespace manta::journal {

class SqliteJournal final : public controller::core::Journal {
 public:
  struct Options {
    absl::Duration retry = absl::Seconds(1);
    size_t max_queued_bytes = 64 << 20;  // above it health() refuses new work
    bool discard_damaged = false;
    std::string vfs;  // see SqliteStore
  };
  struct Opened;
  // The new incarnation is on the disk when this returns. Errors: see SqliteStore.
  [[nodiscard]] static absl::StatusOr<Opened> Open(const std::filesystem::path& path, EventLoop& loop,
                                                   const Options& options);
  ~SqliteJournal() override;

  void Put(Kind kind, std::string key, std::string value) override;
  void Erase(Kind kind, std::string key) override;
  uint64_t last_sequence() const override;
  uint64_t durable_sequence() const override;
  void WhenDurable(uint64_t sequence, absl::AnyInvocable<void()> then) override;
  absl::Status health() const override;

  struct Stats {
    uint64_t commits = 0, rows = 0, failures = 0;
  };
  Stats stats() const;

 private:
  class Writer;
  struct State;
  explicit SqliteJournal(std::shared_ptr<State> state);
  void Write(std::pair<uint8_t, std::string> key, std::optional<std::string> value);
  void Flush();
  std::shared_ptr<State> state_;  // shared with closures that the writer has posted
  std::unique_ptr<Writer> writer_;
};

struct SqliteJournal::Opened {
  std::unique_ptr<SqliteJournal> journal;
  std::vector<controller::core::JournalEntry> entries;  // without the incarnation's
  uint64_t incarnation = 0;                             // 1 for the first head of this journal
  std::string cluster_id;
  std::filesystem::path discarded;  // where a damaged journal was moved to
};

}  // namespace manta::journal

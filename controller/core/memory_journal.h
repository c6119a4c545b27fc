// MemoryJournal: the journal's contract without a disk, for tests and the simulator: a commit takes `latency`, carries
// everything that was put before it began, can be stalled (slow or full disk), and a crash loses what no commit has
// carried.
//
// Belongs to its loop's thread. A process that crashed in a test is gone while its journal stays: Disk is what stays.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/core/ports.h"

namespace manta::controller::core {

class MemoryJournal final : public Journal {
 public:
  struct Disk {
    std::map<std::pair<Kind, std::string>, std::string> rows;
    uint64_t commits = 0;
    std::vector<JournalEntry> Rows() const;
  };

  // `latency` is asked for each commit.
  MemoryJournal(EventLoop& loop, std::shared_ptr<Disk> disk, std::function<absl::Duration()> latency);
  explicit MemoryJournal(EventLoop& loop);  // a disk of its own, commits of no time
  ~MemoryJournal() override;

  void Put(Kind kind, std::string key, std::string value) override;
  void Erase(Kind kind, std::string key) override;
  uint64_t last_sequence() const override { return last_; }
  uint64_t durable_sequence() const override { return durable_; }
  void WhenDurable(uint64_t sequence, absl::AnyInvocable<void()> then) override;
  absl::Status health() const override { return health_; }

  // While not OK nothing becomes durable; a commit under way fails and is tried again when it is OK.
  void set_health(absl::Status health);
  Disk& disk() { return *disk_; }

 private:
  struct Change {
    Kind kind;
    std::string key;
    std::string value;
    bool erase;
  };
  void Kick();
  void Commit(size_t changes);

  EventLoop& loop_;
  const std::shared_ptr<Disk> disk_;
  const std::function<absl::Duration()> latency_;
  std::deque<Change> pending_;  // numbered durable_ + 1 ...
  std::deque<std::pair<uint64_t, absl::AnyInvocable<void()>>> waiting_;
  uint64_t last_ = 0, durable_ = 0;
  bool committing_ = false;
  absl::Status health_;
  std::shared_ptr<MemoryJournal*> self_;  // null once destroyed: what the loop still holds does nothing
};

}  // namespace manta::controller::core

#include "controller/core/memory_journal.h"

#include "common/base/check.h"

namespace manta::controller::core {

std::vector<JournalEntry> MemoryJournal::Disk::Rows() const {
  std::vector<JournalEntry> all;
  for (const auto& [key, value] : rows) all.push_back({key.first, key.second, value});
  return all;
}

MemoryJournal::MemoryJournal(EventLoop& loop, std::shared_ptr<Disk> disk, std::function<absl::Duration()> latency)
    : loop_(loop),
      disk_(std::move(disk)),
      latency_(std::move(latency)),
      self_(std::make_shared<MemoryJournal*>(this)) {}

MemoryJournal::MemoryJournal(EventLoop& loop)
    : MemoryJournal(loop, std::make_shared<Disk>(), [] { return absl::ZeroDuration(); }) {}

MemoryJournal::~MemoryJournal() {
  *self_ = nullptr;
}

void MemoryJournal::Put(Kind kind, std::string key, std::string value) {
  pending_.push_back({kind, std::move(key), std::move(value), false});
  ++last_;
  Kick();
}

void MemoryJournal::Erase(Kind kind, std::string key) {
  pending_.push_back({kind, std::move(key), "", true});
  ++last_;
  Kick();
}

void MemoryJournal::Kick() {
  if (committing_ || !health_.ok()) return;
  committing_ = true;
  // From the loop: the changes of one turn go into one commit.
  loop_.Post([self = self_] {
    if (*self == nullptr) return;
    MemoryJournal& journal = **self;
    journal.loop_.RunAfter(journal.latency_(), [self, changes = journal.pending_.size()] {
      if (*self != nullptr) (*self)->Commit(changes);
    });
  });
}

void MemoryJournal::Commit(size_t changes) {
  committing_ = false;
  if (!health_.ok()) return;
  for (size_t i = 0; i < changes; ++i) {
    Change& change = pending_.front();
    if (change.erase) {
      disk_->rows.erase({change.kind, change.key});
    } else {
      disk_->rows[{change.kind, change.key}] = std::move(change.value);
    }
    pending_.pop_front();
    ++durable_;
  }
  ++disk_->commits;
  if (!pending_.empty()) Kick();
  const auto self = self_;  // one of them may destroy this
  while (*self != nullptr && !waiting_.empty() && waiting_.front().first <= durable_) {
    auto then = std::move(waiting_.front().second);
    waiting_.pop_front();
    then();
  }
}

void MemoryJournal::WhenDurable(uint64_t sequence, absl::AnyInvocable<void()> then) {
  MANTA_CHECK(sequence <= last_) << "waits for a change that was never made";
  if (sequence <= durable_) {
    loop_.Post([self = self_, then = std::move(then)]() mutable {
      if (*self != nullptr) then();
    });
    return;
  }
  auto at = waiting_.end();
  while (at != waiting_.begin() && std::prev(at)->first > sequence) --at;
  waiting_.emplace(at, sequence, std::move(then));
}

void MemoryJournal::set_health(absl::Status health) {
  health_ = std::move(health);
  if (health_.ok() && !pending_.empty()) Kick();
}

}  // namespace manta::controller::core

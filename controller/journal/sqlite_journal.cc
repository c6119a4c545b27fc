#include "controller/journal/sqlite_journal.h"

#include <map>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/journal/sqlite_store.h"
#include "controller/journal/write_queue.h"
#include "spdlog/spdlog.h"

namespace manta::journal {

using controller::core::Journal;
using controller::core::JournalEntry;

// The loop's.
struct SqliteJournal::State {
  State(EventLoop& l, Options o) : loop(l), options(std::move(o)) {}

  // Runs what waited for what is durable by now, in order.
  void RunWaiters() {
    while (!closed && !waiters.empty() && waiters.begin()->first <= durable) {
      auto then = std::move(waiters.begin()->second);
      waiters.erase(waiters.begin());
      then();
    }
  }

  EventLoop& loop;
  const Options options;
  std::string path;
  uint64_t last = 0;
  Batch turn;  // of the closure that runs now
  uint64_t durable = 0;
  std::multimap<uint64_t, absl::AnyInvocable<void()>> waiters;  // equal sequences in order of their coming
  absl::Status disk;                                            // the last commit's
  Stats stats;
  bool closed = false;
};

// The thread that touches SQLite.
class SqliteJournal::Writer {
 public:
  Writer(std::unique_ptr<SqliteStore> store, std::shared_ptr<State> state)
      : store_(std::move(store)),
        poster_(state->loop.poster()),
        state_(std::move(state)),
        retry_(state_->options.retry) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Writer() {
    queue_.Stop();
    thread_.join();
  }
  WriteQueue& queue() { return queue_; }

 private:
  void Run() {
    Batch batch;
    while (queue_.Take(&batch, retry_)) {
      const absl::Status status = store_->Commit(batch.rows);
      const uint64_t through = batch.through;
      const size_t rows = batch.rows.size();
      if (status.ok()) queue_.Committed(&batch);  // before anyone is told: whoever is told may put more
      Report(status, through, rows);
      if (!status.ok() && queue_.stopped()) return;  // tried once more; it was never acknowledged
    }
  }
  void Report(const absl::Status& status, uint64_t through, size_t rows) {
    poster_.Post([state = state_, status, through, rows] {
      if (state->closed) return;
      if (status.ok()) {
        if (!state->disk.ok()) spdlog::info("journal {}: writes again, {} rows caught up", state->path, rows);
        ++state->stats.commits;
        state->stats.rows += rows;
        state->durable = through;
      } else {
        if (state->disk.ok()) {
          spdlog::error("{}; nothing new is taken until it can be written, running workers go on",
                        std::string(status.message()));
        }
        ++state->stats.failures;
      }
      state->disk = status;
      state->RunWaiters();
    });
  }

  WriteQueue queue_;
  std::unique_ptr<SqliteStore> store_;
  const EventLoop::Poster poster_;
  const std::shared_ptr<State> state_;
  const absl::Duration retry_;
  std::thread thread_;
};

absl::StatusOr<SqliteJournal::Opened> SqliteJournal::Open(const std::filesystem::path& path, EventLoop& loop,
                                                          const Options& options) {
  MANTA_ASSIGN_OR_RETURN(std::unique_ptr<SqliteStore> store,
                         SqliteStore::Open(path, {.discard_damaged = options.discard_damaged, .vfs = options.vfs}));
  Opened opened;
  opened.cluster_id = store->cluster_id();
  opened.discarded = store->discarded();
  uint64_t last = 0;
  MANTA_RETURN_IF_ERROR(store->ReadAll([&](uint8_t kind, std::string_view key, std::string_view value) {
    if (kind == static_cast<uint8_t>(Journal::Kind::kIncarnation)) {
      (void)absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &last);
      return;
    }
    opened.entries.push_back(
        {.kind = static_cast<Journal::Kind>(kind), .key = std::string(key), .value = std::string(value)});
  }));
  opened.incarnation = last + 1;
  MANTA_RETURN_IF_ERROR(
      store->Commit({{{static_cast<uint8_t>(Journal::Kind::kIncarnation), "head"}, absl::StrCat(opened.incarnation)}}));
  auto state = std::make_shared<State>(loop, options);
  state->path = path.string();
  opened.journal.reset(new SqliteJournal(state));
  opened.journal->writer_ = std::make_unique<Writer>(std::move(store), std::move(state));
  return opened;
}

SqliteJournal::SqliteJournal(std::shared_ptr<State> state) : state_(std::move(state)) {}

SqliteJournal::~SqliteJournal() {
  Flush();
  writer_.reset();
  state_->closed = true;
  state_->waiters.clear();
}

void SqliteJournal::Put(Kind kind, std::string key, std::string value) {
  Write({static_cast<uint8_t>(kind), std::move(key)}, std::move(value));
}

void SqliteJournal::Erase(Kind kind, std::string key) {
  Write({static_cast<uint8_t>(kind), std::move(key)}, std::nullopt);
}

void SqliteJournal::Write(std::pair<uint8_t, std::string> key, std::optional<std::string> value) {
  // A closure of its own hands them over, so that what this closure puts is never divided.
  if (state_->turn.rows.empty()) {
    state_->loop.Post([this, state = state_] {
      if (!state->closed) Flush();
    });
  }
  state_->turn.Write(std::move(key), std::move(value));
  state_->turn.through = ++state_->last;
}

void SqliteJournal::Flush() {
  writer_->queue().Add(std::exchange(state_->turn, Batch()));
}

uint64_t SqliteJournal::last_sequence() const {
  return state_->last;
}
uint64_t SqliteJournal::durable_sequence() const {
  return state_->durable;
}

void SqliteJournal::WhenDurable(uint64_t sequence, absl::AnyInvocable<void()> then) {
  state_->waiters.emplace(sequence, std::move(then));
  // Never at once: the caller is in the middle of something.
  if (sequence <= state_->durable) state_->loop.Post([state = state_] { state->RunWaiters(); });
}

absl::Status SqliteJournal::health() const {
  if (!state_->disk.ok()) return state_->disk;
  const size_t bytes = state_->turn.bytes + writer_->queue().bytes();
  if (bytes <= state_->options.max_queued_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("journal ", state_->path, ": ", bytes >> 20, " MiB wait to be written: the disk is too slow"));
}

SqliteJournal::Stats SqliteJournal::stats() const {
  return state_->stats;
}

}  // namespace manta::journal

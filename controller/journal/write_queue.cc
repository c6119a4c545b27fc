#include "controller/journal/write_queue.h"

namespace manta::journal {
namespace {

constexpr size_t kRowOverhead = 64;  // a map's node

size_t RowBytes(const RowKey& key, const std::optional<std::string>& value) {
  return kRowOverhead + key.second.size() + (value.has_value() ? value->size() : 0);
}

}  // namespace

void Batch::Write(RowKey key, std::optional<std::string> value) {
  bytes += RowBytes(key, value);
  auto [row, added] = rows.try_emplace(std::move(key));
  if (!added) bytes -= RowBytes(row->first, row->second);
  row->second = std::move(value);
}

void Batch::Overlay(Batch newer) {
  if (newer.rows.empty()) return;
  if (rows.empty()) {
    *this = std::move(newer);
    return;
  }
  for (auto& [key, value] : newer.rows) Write(key, std::move(value));
  through = newer.through;
}

void WriteQueue::Add(Batch newer) {
  std::lock_guard lock(mu_);
  queued_.Overlay(std::move(newer));
  if (waiting_) wake_.notify_one();
}

size_t WriteQueue::bytes() const {
  std::lock_guard lock(mu_);
  return queued_.bytes + taken_bytes_;
}

bool WriteQueue::Take(Batch* batch, absl::Duration patience) {
  std::unique_lock lock(mu_);
  const auto something = [&] { return stopped_ || !queued_.rows.empty(); };
  waiting_ = true;
  if (batch->rows.empty()) {
    wake_.wait(lock, something);
  } else {
    // After a failed commit the disk is given time, whatever else is put meanwhile.
    wake_.wait_for(lock, absl::ToChronoMilliseconds(patience), [&] { return stopped_; });
  }
  waiting_ = false;
  batch->Overlay(std::exchange(queued_, Batch()));
  taken_bytes_ = batch->bytes;
  return !batch->rows.empty();
}

void WriteQueue::Committed(Batch* batch) {
  *batch = Batch();
  std::lock_guard lock(mu_);
  taken_bytes_ = 0;
}

void WriteQueue::Stop() {
  std::lock_guard lock(mu_);
  stopped_ = true;
  wake_.notify_all();
}

bool WriteQueue::stopped() const {
  std::lock_guard lock(mu_);
  return stopped_;
}

}  // namespace manta::journal

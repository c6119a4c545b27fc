// WriteQueue: what the loop wants written and the writer has not committed yet.
//
// The journal is a table of state, so of several writes to one key only the last matters: the queue holds each key
// once, and its size is bounded by the state that is alive however long the disk refuses. All that is queued goes into
// one transaction: a part of it could leave a table that never was.
//
// One thread adds, one takes; all functions of the queue are thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace manta::journal {

using RowKey = std::pair<uint8_t, std::string>;                  // kind, key
using RowValues = std::map<RowKey, std::optional<std::string>>;  // no value: the row goes

// What one transaction writes.
struct Batch {
  RowValues rows;
  uint64_t through = 0;  // the sequence of the last write in it
  size_t bytes = 0;

  void Write(RowKey key, std::optional<std::string> value);
  void Overlay(Batch newer);  // newer values replace older ones
};

class WriteQueue {
 public:
  // What `newer` holds becomes durable in one transaction.
  void Add(Batch newer);
  // Of what is queued, taken batches that are not committed included.
  size_t bytes() const;

  // Waits until there is something, and hands all of it over. Where `batch` holds what a failed commit left, it waits
  // `patience` and overlays what has come. False once stopped and with nothing left to write.
  bool Take(Batch* batch, absl::Duration patience);
  // `batch` is on the disk: its bytes count no more, and it is emptied.
  void Committed(Batch* batch);

  // Take returns at once from now on.
  void Stop();
  bool stopped() const;

 private:
  mutable std::mutex mu_;
  std::condition_variable wake_;
  Batch queued_;
  size_t taken_bytes_ = 0;
  bool waiting_ = false, stopped_ = false;
};

}  // namespace manta::journal

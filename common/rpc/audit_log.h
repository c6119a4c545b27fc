// The audit log of a process: a line for each call of a method that the proto marks with `audit`, and for each refusal.
//
//   2026-11-30T13:50:26.727Z call method=/manta.v1.ControllerService/StopRun role=admin peer=ipv4:127.0.0.1:34884
//       certificate=manta://JOB/admin/login outcome=OK                                                      (one line)
//   2026-11-30T13:50:27.001Z refused reason=wrong_token method=/manta.v1.NodeService/Join
//
// Lines go to a file (10 files of 10 MiB, the oldest is dropped) where one was named, and to the process's own log where
// none was; refusals go to that log always. Adding a line never blocks: a thread of its own, started with the first line, writes them; of more than
// 10,000 lines that wait the newest are dropped, and their number is written. No token ever comes near. Thread-safe.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace manta::rpc {

class AuditLog {
 public:
  // The process's; never destroyed.
  static AuditLog& Process();

  // Opens the file (0600), or another one in its place. UNAVAILABLE where that fails.
  [[nodiscard]] absl::Status SetFile(const std::filesystem::path& path);

  void Called(absl::string_view line) { Add("call ", line, /*refusal=*/false); }
  void Refused(absl::string_view line) { Add("refused ", line, /*refusal=*/true); }

  // Waits until what was added before is written, for `patience` at most.
  void Flush(absl::Duration patience);

 private:
  struct Line {
    absl::Time at;
    std::string text;
    bool refusal;
  };
  class File;

  AuditLog() = default;
  void Add(absl::string_view kind, absl::string_view line, bool refusal);
  void WriteLines();

  absl::Mutex mutex_;
  std::shared_ptr<File> file_ ABSL_GUARDED_BY(mutex_);
  std::deque<Line> lines_ ABSL_GUARDED_BY(mutex_);
  size_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace manta::rpc

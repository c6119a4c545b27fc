// CapturedLog: where a worker's output goes: a file that is bounded, and the last lines in memory.
//
// A file that reaches `max_bytes` is renamed to NAME.1 (replacing an older one) and begun anew, so a worker that prints
// without end costs at most twice that. What cannot be written (a full disk) is dropped; the tail keeps going. One
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace manta::node {

// The last lines of a stream of bytes: at most `max_lines`, each cut at 500 bytes. A last line without its end counts.
class LineTail {
 public:
  explicit LineTail(size_t max_lines = 50) : max_lines_(max_lines) {}
  void Append(std::string_view bytes);
  std::vector<std::string> Lines() const;

 private:
  const size_t max_lines_;
  std::deque<std::string> lines_;
  std::string partial_;
};

class CapturedLog {
 public:
  ~CapturedLog();
  // Appends to what is there; makes the folder.
  [[nodiscard]] absl::Status Open(const std::string& path, uint64_t max_bytes = uint64_t{64} << 20);
  void Write(std::string_view bytes);

 private:
  void Rotate();

  std::string path_;
  uint64_t max_bytes_ = 0, bytes_ = 0;
  int fd_ = -1;
};

// The last lines of a file; empty where it cannot be read.
std::vector<std::string> LastLinesOf(const std::string& path, size_t max_lines = 50);

}  // namespace manta::node

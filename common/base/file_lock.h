// FileLock: one holder at a time of what a file stands for, by flock. The lock goes with its process, however that
// ends, and is not inherited by what the process starts. The file says who holds it, so that the next one can tell.
//
// Not for folders that several machines share by a file system without locks across them: there each machine has its
// own. A value; move-only. Two locks on one file exclude each other within a process, too.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace manta {

class FileLock {
 public:
  // Takes the lock of `path`, a file that is made where there is none (mode 0600), and writes `holder` into it, one
  // line. ALREADY_EXISTS with what the holder has written (it may be empty) where somebody has it.
  [[nodiscard]] static absl::StatusOr<FileLock> Take(const std::filesystem::path& path, std::string_view holder);

  FileLock() = default;  // holds nothing
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace manta

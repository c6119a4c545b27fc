#include "common/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"

namespace manta {
namespace {

constexpr size_t kMostBytes = 4096;  // of what a holder writes

std::string FirstLine(int fd) {
  std::string text(kMostBytes, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return text.substr(0, text.find('\n'));
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Take(const std::filesystem::path& path, std::string_view holder) {
  FileLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.fd_ < 0) return ErrnoError("open", path, errno);
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error != EWOULDBLOCK) return ErrnoError("lock", path, error);
    return absl::AlreadyExistsError(FirstLine(lock.fd_));
  }
  const std::string line = std::string(holder.substr(0, kMostBytes - 1)) + "\n";
  if (ftruncate(lock.fd_, 0) != 0 || pwrite(lock.fd_, line.data(), line.size(), 0) < 0) {
    // A full disk: the lock holds all the same, only nobody is told by whom.
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace manta

#include "common/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta {

absl::Status ErrnoError(std::string_view what, const std::filesystem::path& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", std::string(what), " ", path.string()));
}

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path, uint64_t max_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open", path, errno);
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoError("stat", path, errno);
  if (S_ISDIR(st.st_mode)) return UserError(absl::StrCat(path.string(), ": is a folder, expected a file"));
  std::string content;
  if (S_ISREG(st.st_mode)) content.reserve(static_cast<size_t>(st.st_size));
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError("read", path, errno);
    if (n == 0) break;
    if (content.size() + static_cast<size_t>(n) > max_bytes) {
      return UserError(absl::StrCat(path.string(), ": larger than the ", max_bytes, " bytes allowed"));
    }
    content.append(buffer, static_cast<size_t>(n));
  }
  return content;
}

absl::Status SyncDirectory(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open", path, errno);
  absl::Cleanup close_fd = [fd] { close(fd); };
  if (fsync(fd) != 0) return ErrnoError("sync", path, errno);
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path temporary = path;
  temporary += absl::StrCat(".tmp.", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError("create", temporary, errno);
  auto fail = [&](std::string_view what) {
    const int error = errno;
    close(fd);
    unlink(temporary.c_str());
    return ErrnoError(what, temporary, error);
  };
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = write(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail("write");
    done += static_cast<size_t>(n);
  }
  if (fsync(fd) != 0) return fail("sync");
  close(fd);
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return ErrnoError("rename", temporary, error);
  }
  const auto folder = path.parent_path();
  return SyncDirectory(folder.empty() ? "." : folder);
}

}  // namespace manta

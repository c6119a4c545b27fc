#include "common/rpc/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::rpc {

absl::StatusOr<std::string> CreateTokenFile(const std::filesystem::path& path) {
  char bytes[32];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return absl::ErrnoToStatus(errno, "no random bytes");
  std::string token = absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
  MANTA_RETURN_IF_ERROR(WriteSecretFile(path, token));
  return token;
}

absl::Status WriteSecretFile(const std::filesystem::path& path, absl::string_view line) {
  // A new file under its own mode: one that exists might be readable, or be a link to elsewhere. Under another name
  // first: a reader finds the old line or the new one.
  const std::filesystem::path fresh = absl::StrCat(path.string(), ".new");
  if (unlink(fresh.c_str()) != 0 && errno != ENOENT) return ErrnoError("replace", fresh, errno);
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoError("create", fresh, errno);
  const std::string content = absl::StrCat(line, "\n");
  const bool written = write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  const int error = errno;
  close(fd);
  if (!written) return ErrnoError("write", fresh, error);
  if (rename(fresh.c_str(), path.c_str()) != 0) return ErrnoError("replace", path, errno);
  return absl::OkStatus();
}

bool IsPrivate(const struct stat& file) {
  const mode_t others = file.st_mode & 077;
  return others == 0 || (others == 040 && file.st_uid == 0 && geteuid() != 0);
}

absl::StatusOr<std::string> ReadTokenFile(const std::filesystem::path& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return ErrnoError("read the token file", path, errno);
  if (!IsPrivate(st)) {
    return UserError(absl::StrCat(path.string(), ": others can read the job token; expected mode 0600"));
  }
  MANTA_ASSIGN_OR_RETURN(std::string content, ReadFile(path, 4096));
  std::string token(absl::StripAsciiWhitespace(content));
  if (token.size() < 16) return UserError(absl::StrCat(path.string(), ": holds no job token"));
  return token;
}

bool TokensEqual(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace manta::rpc

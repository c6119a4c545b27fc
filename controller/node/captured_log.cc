#include "controller/node/captured_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"

namespace manta::node {
namespace {

constexpr size_t kMaxLine = 500;

// Lines travel in protobuf strings, which must be UTF-8: other bytes become '?'.
std::string Printable(std::string line) {
  bool ascii = true;
  for (unsigned char c : line) ascii = ascii && c < 0x80 && (c >= 0x20 || c == '\t');
  if (ascii) return line;
  std::string result;
  for (size_t i = 0; i < line.size();) {
    const unsigned char c = line[i];
    const size_t n = c < 0x80                ? 1
                     : c >= 0xc2 && c < 0xe0 ? 2
                     : c >= 0xe0 && c < 0xf0 ? 3
                     : c >= 0xf0 && c < 0xf5 ? 4
                                             : 0;
    bool valid = n > 0 && i + n <= line.size() && (c >= 0x20 || c == '\t');
    for (size_t k = 1; valid && k < n; ++k) valid = (line[i + k] & 0xc0) == 0x80;
    // Overlong forms and surrogates, which the lead byte alone does not rule out.
    if (valid && n == 3) {
      const unsigned char d = line[i + 1];
      valid = !(c == 0xe0 && d < 0xa0) && !(c == 0xed && d >= 0xa0);
    } else if (valid && n == 4) {
      const unsigned char d = line[i + 1];
      valid = !(c == 0xf0 && d < 0x90) && !(c == 0xf4 && d >= 0x90);
    }
    if (valid) {
      result.append(line, i, n);
      i += n;
    } else {
      result += '?';
      ++i;
    }
  }
  return result;
}

}  // namespace

void LineTail::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    partial_.append(piece.substr(0, kMaxLine - std::min(partial_.size(), kMaxLine)));
    if (end == std::string_view::npos) return;
    lines_.push_back(Printable(std::move(partial_)));
    partial_.clear();
    if (lines_.size() > max_lines_) lines_.pop_front();
    bytes.remove_prefix(end + 1);
  }
}

std::vector<std::string> LineTail::Lines() const {
  std::vector<std::string> lines(lines_.begin(), lines_.end());
  if (!partial_.empty()) lines.push_back(Printable(partial_));
  if (lines.size() > max_lines_) lines.erase(lines.begin());
  return lines;
}

CapturedLog::~CapturedLog() {
  if (fd_ >= 0) close(fd_);
}

absl::Status CapturedLog::Open(const std::string& path, uint64_t max_bytes) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) return ErrnoError("open the log", path, errno);
  struct stat st;
  bytes_ = fstat(fd_, &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
  path_ = path;
  max_bytes_ = max_bytes;
  return absl::OkStatus();
}

void CapturedLog::Write(std::string_view bytes) {
  if (bytes_ + bytes.size() > max_bytes_) Rotate();
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes_ += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void CapturedLog::Rotate() {
  if (fd_ < 0) return;
  const std::string old = absl::StrCat(path_, ".1");
  if (rename(path_.c_str(), old.c_str()) != 0) {
    if (ftruncate(fd_, 0) == 0) bytes_ = 0;
    return;
  }
  close(fd_);
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  bytes_ = 0;
}

std::vector<std::string> LastLinesOf(const std::string& path, size_t max_lines) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  constexpr off_t kLook = 32 << 10;
  const off_t size = lseek(fd, 0, SEEK_END);
  std::string bytes(static_cast<size_t>(std::clamp<off_t>(size, 0, kLook)), '\0');
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), std::max<off_t>(size - kLook, 0));
  close(fd);
  LineTail tail(max_lines);
  if (n > 0) tail.Append(std::string_view(bytes).substr(0, static_cast<size_t>(n)));
  return tail.Lines();
}

}  // namespace manta::node

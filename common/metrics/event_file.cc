#include "common/metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/metrics/crc32c.h"

namespace manta::metrics {
namespace {

// Protocol buffers' wire format: a tag is field number << 3 | wire type.
void Varint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}
void Bytes(int field, std::string_view bytes, std::string& out) {
  Varint(static_cast<uint64_t>(field) << 3 | 2, out);
  Varint(bytes.size(), out);
  out.append(bytes);
}
template <typename T>
void Fixed(int field, T value, std::string& out) {
  Varint(static_cast<uint64_t>(field) << 3 | (sizeof(T) == 8 ? 1 : 5), out);
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

template <typename T>
void AppendRaw(T value, std::string& out) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return ErrnoError("create", dir, error.value());
  char host[256] = "host";
  if (gethostname(host, sizeof(host) - 1) != 0) std::strcpy(host, "host");
  const auto now = static_cast<int64_t>(std::time(nullptr));
  std::filesystem::path path = dir / absl::StrCat("events.out.tfevents.", now, ".", host, ".", getpid());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError("create", path, errno);
  std::unique_ptr<EventFile> file(new EventFile(fd, std::move(path)));
  std::string event;  // Event{wall_time = 1, file_version = 3}
  Fixed(1, static_cast<double>(now), event);
  Bytes(3, "brain.Event:2", event);
  MANTA_RETURN_IF_ERROR(file->WriteRecord(event));
  return file;
}

EventFile::~EventFile() { close(fd_); }

absl::Status EventFile::WriteScalars(int64_t step, double time, const std::map<std::string, double>& values) {
  std::string summary;  // Summary{repeated Value{tag = 1, simple_value = 2} value = 1}
  for (const auto& [name, value] : values) {
    std::string entry;
    Bytes(1, name, entry);
    Fixed(2, static_cast<float>(value), entry);
    Bytes(1, entry, summary);
  }
  std::string event;  // Event{wall_time = 1, step = 2, summary = 5}
  Fixed(1, time, event);
  Varint(2 << 3, event);
  Varint(static_cast<uint64_t>(step), event);
  Bytes(5, summary, event);
  return WriteRecord(event);
}

absl::Status EventFile::WriteRecord(std::string_view data) {
  std::string length;
  AppendRaw(static_cast<uint64_t>(data.size()), length);
  std::string record = length;
  AppendRaw(MaskedCrc32c(length), record);
  record.append(data);
  AppendRaw(MaskedCrc32c(data), record);
  for (size_t done = 0; done < record.size();) {
    const ssize_t n = write(fd_, record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError("write", path_, errno);
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace manta::metrics

#include "common/rpc/audit_log.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "spdlog/spdlog.h"

namespace manta::rpc {
namespace {

constexpr size_t kMaxLines = 10000;
constexpr size_t kMaxLineBytes = 2000;
constexpr int kFiles = 10;
constexpr off_t kFileBytes = 10 << 20;

constexpr absl::Duration kGather = absl::Milliseconds(2);

std::string Text(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

}  // namespace

// Touched by the log's thread, after Open.
class AuditLog::File {
 public:
  static absl::StatusOr<std::shared_ptr<File>> Open(const std::filesystem::path& path) {
    auto file = std::make_shared<File>();
    file->path_ = path;
    MANTA_RETURN_IF_ERROR(file->Reopen());
    return file;
  }
  ~File() { Close(); }

  // Whole lines.
  void Write(const std::string& content) {
    if (content.empty()) return;
    if (lseek(fd_, 0, SEEK_END) > kFileBytes) Rotate();
    if (write(fd_, content.data(), content.size()) == static_cast<ssize_t>(content.size())) return;
    if (!told_) spdlog::error("the audit log {} cannot be written: {}", path_.string(), strerror(errno));
    told_ = true;
  }

 private:
  absl::Status Reopen() {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return fd_ < 0 ? ErrnoError("open the audit log", path_, errno) : absl::OkStatus();
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Rotate() {
    const auto name = [&](int i) { return i == 0 ? path_.string() : absl::StrCat(path_.string(), ".", i); };
    Close();
    for (int i = kFiles - 1; i > 0; --i) (void)rename(name(i - 1).c_str(), name(i).c_str());
    (void)Reopen();  // a failure shows in the next write
  }

  std::filesystem::path path_;
  int fd_ = -1;
  bool told_ = false;
};

AuditLog& AuditLog::Process() {
  static auto& log = *new AuditLog();
  return log;
}

absl::Status AuditLog::SetFile(const std::filesystem::path& path) {
  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<File> file, File::Open(path));
  absl::MutexLock lock(&mutex_);
  file_ = std::move(file);
  return absl::OkStatus();
}

void AuditLog::Add(absl::string_view kind, absl::string_view line, bool refusal) {
  std::string text = absl::StrCat(kind, line.substr(0, kMaxLineBytes));
  for (char& c : text) {  // what a caller names itself must not make lines of its own
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  absl::MutexLock lock(&mutex_);
  if (lines_.size() >= kMaxLines) {
    ++dropped_;
    return;
  }
  lines_.push_back({absl::Now(), std::move(text), refusal});
  if (started_) return;
  started_ = true;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // signals are for the threads that wait for them
  std::thread([this] { WriteLines(); }).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void AuditLog::WriteLines() {
  while (true) {
    std::deque<Line> lines;
    std::shared_ptr<File> file;
    size_t dropped;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      mutex_.Await(absl::Condition(
          +[](AuditLog* log) ABSL_NO_THREAD_SAFETY_ANALYSIS { return !log->lines_.empty(); }, this));
      writing_ = true;
    }
    absl::SleepFor(kGather);  // those that come meanwhile need not wake this thread, and are written with the first
    {
      absl::MutexLock lock(&mutex_);
      lines.swap(lines_);
      file = file_;
      dropped = std::exchange(dropped_, 0);
    }
    std::string content;
    for (const Line& line : lines) {
      if (file != nullptr) absl::StrAppend(&content, Text(line.at), " ", line.text, "\n");
      if (line.refusal) {
        spdlog::warn("{}", line.text);
      } else if (file == nullptr) {
        spdlog::info("{}", line.text);
      }
    }
    if (file != nullptr && dropped > 0) {
      absl::StrAppend(&content, Text(absl::Now()), " dropped ", dropped, " lines: they came too fast\n");
    }
    if (file != nullptr) file->Write(content);
    if (dropped > 0) spdlog::warn("the audit log dropped {} lines: they came too fast", dropped);
  }
}

void AuditLog::Flush(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(
      absl::Condition(
          +[](AuditLog* log) ABSL_NO_THREAD_SAFETY_ANALYSIS { return log->lines_.empty() && !log->writing_; }, this),
      patience);
}

}  // namespace manta::rpc

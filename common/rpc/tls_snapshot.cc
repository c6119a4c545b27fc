#include "common/rpc/tls_snapshot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/certificates.h"
#include "spdlog/spdlog.h"

namespace manta::rpc {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(500);
constexpr unsigned kGrpcLooksEverySeconds = 1;
constexpr absl::Duration kMayTake = absl::Seconds(1);  // between the rename of a key and of its certificate
constexpr absl::Duration kLookAgain = absl::Milliseconds(10);
constexpr absl::Duration kSayAfter = absl::Seconds(10);  // that files do not fit

std::string StampOf(const std::filesystem::path& path) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return "none;";
  return absl::StrCat(st.st_dev, ".", st.st_ino, ".", st.st_size, ".", st.st_mtim.tv_sec, ".", st.st_mtim.tv_nsec, ";");
}

// Where gRPC reads an anonymous file: each time anew, from its beginning.
std::string PathOf(int fd) {
  return absl::StrCat("/proc/self/fd/", fd);
}

struct Registry {
  absl::Mutex mutex;
  std::map<std::tuple<std::string, std::string, std::string>, TlsSnapshot*> snapshots ABSL_GUARDED_BY(mutex);
  bool watched ABSL_GUARDED_BY(mutex) = false;
};
Registry& TheRegistry() {
  static auto& registry = *new Registry();
  return registry;
}

[[noreturn]] void Watch() {
  while (true) {
    absl::SleepFor(kLookEvery);
    std::vector<TlsSnapshot*> all;
    {
      absl::MutexLock lock(&TheRegistry().mutex);
      for (const auto& [files, snapshot] : TheRegistry().snapshots) all.push_back(snapshot);
    }
    for (TlsSnapshot* snapshot : all) snapshot->Refresh();
  }
}

}  // namespace

TlsSnapshot::TlsSnapshot(TlsFiles files) : files_(std::move(files)) {}

absl::StatusOr<TlsSnapshot*> TlsSnapshot::Of(const TlsFiles& files) {
  Registry& registry = TheRegistry();
  const std::tuple key(files.ca.string(), files.certificate.string(), files.key.string());
  TlsSnapshot* there = nullptr;
  {
    absl::MutexLock lock(&registry.mutex);
    const auto found = registry.snapshots.find(key);
    if (found != registry.snapshots.end()) there = found->second;
  }
  if (there != nullptr) {
    there->Refresh();
    return there;
  }
  std::unique_ptr<TlsSnapshot> made(new TlsSnapshot(files));
  const absl::Time until = absl::Now() + kMayTake;
  while (true) {
    absl::Status read;
    {
      absl::MutexLock lock(&made->mutex_);
      read = made->Read();
    }
    if (read.ok()) break;
    if (absl::Now() >= until || StampOf(files.certificate) == "none;") return read;
    absl::SleepFor(kLookAgain);
  }
  absl::MutexLock lock(&registry.mutex);
  TlsSnapshot*& kept = registry.snapshots[key];
  if (kept == nullptr) kept = made.release();  // never freed: gRPC's watchers read its descriptors
  return kept;
}

std::string TlsSnapshot::uri() const {
  absl::MutexLock lock(&mutex_);
  return uri_;
}

TlsSnapshot::Provider TlsSnapshot::provider() {
  {
    Registry& registry = TheRegistry();
    absl::MutexLock lock(&registry.mutex);
    if (!std::exchange(registry.watched, true)) std::thread(Watch).detach();
  }
  absl::MutexLock lock(&mutex_);
  if (provided_ != generation_) {  // gRPC's watcher reads when it is made; an earlier one may not have looked yet
    provider_ = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
        PathOf(pair_fd_), PathOf(pair_fd_), PathOf(ca_fd_), kGrpcLooksEverySeconds);
    provided_ = generation_;
  }
  return provider_;
}

void TlsSnapshot::Refresh() {
  absl::MutexLock lock(&mutex_);
  const absl::Status read = Read();
  if (read.ok()) {
    unfit_since_ = absl::InfiniteFuture();
  } else if (unfit_since_ == absl::InfiniteFuture()) {
    unfit_since_ = absl::Now();
  } else if (unfit_since_ != absl::InfinitePast() && absl::Now() - unfit_since_ > kSayAfter) {
    unfit_since_ = absl::InfinitePast();  // said
    spdlog::warn("the certificate that was read before stays in use: {}", std::string(read.message()));
  }
}

absl::Status TlsSnapshot::Read() {
  const std::string stamps = absl::StrCat(StampOf(files_.ca), StampOf(files_.certificate), StampOf(files_.key));
  if (stamps == stamps_) return absl::OkStatus();
  MANTA_ASSIGN_OR_RETURN(const std::string ca, ReadFile(files_.ca, 1 << 20));
  MANTA_ASSIGN_OR_RETURN(const std::string certificate, ReadFile(files_.certificate, 1 << 20));
  MANTA_ASSIGN_OR_RETURN(const std::string key, ReadFile(files_.key, 1 << 20));
  const absl::StatusOr<std::string> uri =
      CheckFit({files_.ca.string(), ca}, {files_.certificate.string(), certificate}, {files_.key.string(), key});
  // Whom to trust is taken over by itself: a CA that was dropped is not to be trusted until the own certificate is
  // renewed.
  const bool first = pair_fd_ < 0;
  if (!first && ca != ca_ && HoldsCertificates({files_.ca.string(), ca})) {
    MANTA_RETURN_IF_ERROR(Publish(&ca_fd_, ca));
    ca_ = ca;
  }
  MANTA_RETURN_IF_ERROR(uri.status());
  const std::string pair = absl::StrCat(certificate, "\n", key);
  if (first) {
    MANTA_RETURN_IF_ERROR(Publish(&ca_fd_, ca));
    ca_ = ca;
  }
  if (pair != pair_) {
    MANTA_RETURN_IF_ERROR(Publish(&pair_fd_, pair));
    pair_ = pair;
  }
  uri_ = *uri;
  stamps_ = stamps;
  return absl::OkStatus();
}

absl::Status TlsSnapshot::Publish(int* fd, const std::string& content) {
  const int made = memfd_create("manta-certificates", MFD_CLOEXEC);
  if (made < 0) return ErrnoError("make", "memory for certificates", errno);
  ++generation_;
  // gRPC reads the pair's file twice, and tells by the time in whole seconds whether it was replaced in between.
  const timespec times[2] = {{.tv_sec = generation_, .tv_nsec = 0}, {.tv_sec = generation_, .tv_nsec = 0}};
  if (write(made, content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      futimens(made, times) != 0) {
    const absl::Status failed = ErrnoError("write", "memory for certificates", errno);
    close(made);
    return failed;
  }
  if (*fd < 0) {
    *fd = made;
    return absl::OkStatus();
  }
  const bool replaced = dup3(made, *fd, O_CLOEXEC) >= 0;
  const absl::Status failed = replaced ? absl::OkStatus() : ErrnoError("replace", "memory for certificates", errno);
  close(made);
  return failed;
}

}  // namespace manta::rpc

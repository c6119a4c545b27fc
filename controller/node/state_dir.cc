#include "controller/node/state_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/file.h"
#include "common/base/file_lock.h"

namespace manta::node {
namespace {

constexpr char kSocketEnd[] = ".sock";

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

template <size_t n>
std::string RandomBytes() {
  std::string bytes(n, '\0');
  if (getrandom(bytes.data(), n, 0) != static_cast<ssize_t>(n)) bytes.clear();
  return bytes;
}

// The address of shims/NAME.sock by way of an open folder, which `folder` is to be kept for.
bool SocketAddress(const std::string& state_dir, const std::string& name, int* folder, sockaddr_un* address) {
  *folder = open(absl::StrCat(state_dir, "/shims").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*folder < 0) return false;
  *address = {};
  address->sun_family = AF_UNIX;
  const std::string path = absl::StrCat("/proc/self/fd/", *folder, "/", name, kSocketEnd);
  if (path.size() >= sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, path.c_str(), path.size() + 1);
  return true;
}

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<StateDir> StateDir::Open(const std::string& path) {
  StateDir state;
  state.path_ = path;
  std::error_code error;
  for (const char* sub : {"/shims", "/exits"}) std::filesystem::create_directories(path + sub, error);
  if (error) return absl::FailedPreconditionError(absl::StrCat("cannot make ", path, ": ", error.message()));
  chmod(path.c_str(), 0700);
  absl::StatusOr<FileLock> lock = FileLock::Take(path + "/lock", absl::StrCat(getpid()));
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("another node agent of this name (pid ", lock.status().message(), ") holds ", path));
  }
  if (!lock.ok()) return lock.status();
  state.lock_ = *std::move(lock);
  const std::string key_file = path + "/agent.key";
  state.key_ = manta::ReadFile(key_file, 64).value_or("");
  if (state.key_.size() != 32) {
    state.key_ = RandomBytes<32>();
    if (state.key_.empty() || !ReplaceFile(key_file, state.key_)) return ErrnoError("write", key_file, errno);
  }
  const std::string incarnation_file = path + "/incarnation";
  const std::string boot = BootId();
  std::string text = manta::ReadFile(incarnation_file, 256).value_or("");
  const size_t blank = text.find(' ');
  if (blank == std::string::npos || text.substr(blank + 1) != boot ||
      !absl::SimpleAtoi(text.substr(0, blank), &state.incarnation_) || state.incarnation_ == 0) {
    const std::string random = RandomBytes<8>();
    if (random.empty()) return absl::InternalError("the system has no random bytes");
    std::memcpy(&state.incarnation_, random.data(), sizeof(state.incarnation_));
    state.incarnation_ |= 1;
    if (!ReplaceFile(incarnation_file, absl::StrCat(state.incarnation_, " ", boot))) {
      return ErrnoError("write", incarnation_file, errno);
    }
  }
  // Where sockets cannot be made it is told now, and not by every actor's start.
  const int probe = ListenAsShim(path, "probe");
  if (probe < 0) return ErrnoError("make a socket in", path, errno);
  close(probe);
  RemoveShimSocket(path, "probe");
  return state;
}

std::string StateName(const std::string& actor_id, uint64_t epoch) {
  return absl::StrCat(absl::StrReplaceAll(actor_id, {{"/", "_"}}), ".", epoch);
}

std::string ReadAgentKey(const std::string& state_dir) {
  std::string key = manta::ReadFile(state_dir + "/agent.key", 64).value_or("");
  return key.size() == 32 ? key : "";
}

int ListenAsShim(const std::string& state_dir, const std::string& name) {
  int folder = -1;
  sockaddr_un address;
  int fd = -1;
  if (SocketAddress(state_dir, name, &folder, &address)) {
    unlink(address.sun_path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t mask = umask(0177);
    const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    umask(mask);
    if (!bound || listen(fd, 4) != 0) {
      if (fd >= 0) close(fd);
      fd = -1;
    }
  }
  if (folder >= 0) close(folder);
  return fd;
}

void RemoveShimSocket(const std::string& state_dir, const std::string& name) {
  unlink(absl::StrCat(state_dir, "/shims/", name, kSocketEnd).c_str());
}

std::vector<std::string> ShimNames(const std::string& state_dir) {
  std::vector<std::string> names;
  for (const std::string& entry : Entries(state_dir + "/shims")) {
    if (absl::EndsWith(entry, kSocketEnd)) names.push_back(entry.substr(0, entry.size() - (sizeof(kSocketEnd) - 1)));
  }
  return names;
}

int ConnectToShim(const std::string& state_dir, const std::string& name) {
  int folder = -1;
  sockaddr_un address;
  int fd = -1;
  if (SocketAddress(state_dir, name, &folder, &address)) {
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd);
      fd = -1;
    }
  }
  if (folder >= 0) close(folder);
  return fd;
}

void WriteExit(const std::string& state_dir, const v1::ActorReport& report) {
  ReplaceFile(absl::StrCat(state_dir, "/exits/", StateName(report.actor_id(), report.epoch())),
              report.SerializeAsString());
}

void RemoveExit(const std::string& state_dir, const std::string& actor_id, uint64_t epoch) {
  unlink(absl::StrCat(state_dir, "/exits/", StateName(actor_id, epoch)).c_str());
}

std::vector<v1::ActorReport> ReadExits(const std::string& state_dir) {
  std::vector<v1::ActorReport> reports;
  for (const std::string& entry : Entries(state_dir + "/exits")) {
    const auto bytes = manta::ReadFile(absl::StrCat(state_dir, "/exits/", entry), uint64_t{1} << 20);
    v1::ActorReport report;
    if (bytes.ok() && report.ParseFromString(*bytes) && !report.actor_id().empty())
      reports.push_back(std::move(report));
  }
  return reports;
}

bool ReplaceFile(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool written = write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  close(fd);
  if (written && rename(temporary.c_str(), path.c_str()) == 0) return true;
  unlink(temporary.c_str());
  return false;
}

}  // namespace manta::node

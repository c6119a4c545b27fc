#include "common/call/core/segment_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/call/core/segment_pool.h"

namespace manta::call {

namespace {

// Empty, and errno, where it cannot be read.
std::string LinkOf(const std::string& path) {
  char target[128];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  return std::string(target, static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

}  // namespace

struct SegmentMap::Mapped {
  Mapped(void* d, size_t b) : data(static_cast<const std::byte*>(d)), bytes(b) {}
  ~Mapped() { munmap(const_cast<std::byte*>(data), bytes); }
  const std::byte* const data;
  const size_t bytes;
};

absl::StatusOr<SegmentMap::View> SegmentMap::Open(const v1::ShmRef& ref) {
  std::lock_guard lock(mu_);
  const Key key(ref.pid(), ref.fd(), ref.segment());
  auto found = std::find_if(maps_.begin(), maps_.end(), [&](const auto& map) { return map.first == key; });
  if (found == maps_.end()) {
    const std::string path = absl::StrCat("/proc/", ref.pid(), "/fd/", ref.fd());
    if (ref.pid() <= 0 || ref.fd() < 0) return absl::FailedPreconditionError(absl::StrCat("cannot open ", path));
    // A memfd is what its link says it is; nothing else is opened, not even for a look: opening may block. Who sees the
    // caller's numbers differently finds something else there.
    const std::string expected = absl::StrCat("/memfd:", SegmentName(ref.segment()), " (deleted)");
    const std::string there = LinkOf(path);
    if (there != expected) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot open ", path, ": ", there.empty() ? absl::StrCat("errno ", errno) : "it is not the caller's"));
    }
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return absl::FailedPreconditionError(absl::StrCat("cannot open ", path, ": errno ", errno));
    if (LinkOf(absl::StrCat("/proc/self/fd/", fd)) != expected) {  // the number was given to another meanwhile
      close(fd);
      return absl::FailedPreconditionError(absl::StrCat("cannot open ", path, ": it is not the caller's"));
    }
    struct stat info = {};
    const int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      close(fd);
      return absl::InvalidArgumentError(absl::StrCat(path, " is not sealed against shrinking"));
    }
    const size_t bytes = static_cast<size_t>(info.st_size);
    void* data = bytes > 0 ? mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (data == MAP_FAILED) return absl::FailedPreconditionError(absl::StrCat("cannot map ", path, ": errno ", errno));
    maps_.emplace_front(key, std::make_shared<Mapped>(data, bytes));
    found = maps_.begin();
    bytes_ += bytes;
    // The longest unused go first, and those whose processes are gone.
    for (auto it = maps_.end(); it != std::next(maps_.begin());) {
      --it;
      const bool gone = access(absl::StrCat("/proc/", std::get<0>(it->first)).c_str(), F_OK) != 0;
      if ((bytes_ > max_bytes_ || gone) && it->second.use_count() == 1) {
        bytes_ -= it->second->bytes;
        it = maps_.erase(it);
      }
    }
  } else {
    maps_.splice(maps_.begin(), maps_, found);
  }
  const std::shared_ptr<Mapped>& map = found->second;
  if (ref.offset() > map->bytes || ref.length() > map->bytes - ref.offset()) {
    return absl::InvalidArgumentError(absl::StrCat("bytes ", ref.offset(), " to ", ref.offset(), " + ", ref.length(),
                                                   " of a shared segment of ", map->bytes));
  }
  return View{.bytes = {map->data + ref.offset(), ref.length()}, .holder = map};
}

}  // namespace manta::call

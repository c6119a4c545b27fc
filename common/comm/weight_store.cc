#include "common/comm/weight_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/comm/hash64.h"
#include "common/comm/weight_manifest.h"

namespace manta::comm {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kCopyBytes = 256 << 10;  // copied, then hashed while still in the cache
constexpr size_t kMaxLeases = 4;

uint64_t Align(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Segment>> Segment::Create(uint64_t bytes) {
  Fd fd(memfd_create("manta-weights", MFD_CLOEXEC));
  // fallocate, not ftruncate alone: memory that is not there is an error here rather than a SIGBUS later.
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      (posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) == ENOSPC)) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", bytes, " bytes of shared memory for the weights"));
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
  }
  return std::shared_ptr<Segment>(new Segment(std::move(fd), static_cast<std::byte*>(data), bytes));
}

Segment::~Segment() {
  munmap(data_, bytes_);
}

std::string Segment::path() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", fd_.get());
}

WeightStore::WeightStore(WeightStoreOptions options) : options_(std::move(options)) {
  MANTA_CHECK(options_.max_versions >= 1);
}

uint64_t WeightStore::newest() const {
  absl::MutexLock lock(&mutex_);
  return newest_;
}

absl::Status WeightStore::CheckVersion(uint64_t version) const {
  absl::MutexLock lock(&mutex_);
  if (version > newest_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("weight version ", version, " after version ", newest_, ": versions only grow"));
}

absl::Status WeightStore::Publish(uint64_t version, absl::Span<const LocalSlice> slices, CopyFunction copy) {
  MANTA_RETURN_IF_ERROR(CheckVersion(version));
  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<WeightVersion> made, Copy(version, slices, copy ? copy : options_.copy));
  absl::MutexLock lock(&mutex_);
  newest_ = version;
  versions_.push_back(std::move(made));
  while (versions_.size() > static_cast<size_t>(options_.max_versions)) versions_.pop_front();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<WeightVersion>> WeightStore::Copy(uint64_t version, absl::Span<const LocalSlice> slices,
                                                                 const CopyFunction& copy) {
  auto made = std::make_shared<WeightVersion>();
  made->manifest.set_version(version);
  made->manifest.set_rank(options_.rank);
  MANTA_RETURN_IF_ERROR(DescribeSlices(slices, &made->manifest));
  uint64_t bytes = SegmentHeader::kBytes;
  for (size_t i = 0; i < slices.size(); ++i) {
    v1::ParameterSlice& entry = *made->manifest.mutable_slices(static_cast<int>(i));
    entry.set_offset(bytes);
    bytes += Align(entry.bytes());
    made->slices.push_back(slices[i].spec);
  }
  made->segment = TakeFreeSegment(bytes);
  if (!made->segment) {
    MANTA_ASSIGN_OR_RETURN(made->segment, Segment::Create(bytes));
  }
  SegmentHeader header;
  header.version = version;
  std::memcpy(made->segment->data(), &header, sizeof(header));
  for (size_t i = 0; i < slices.size(); ++i) {
    v1::ParameterSlice& entry = *made->manifest.mutable_slices(static_cast<int>(i));
    std::byte* to = made->segment->data() + entry.offset();
    const auto* from = static_cast<const std::byte*>(slices[i].data);
    if (copy) {
      if (entry.bytes() > 0) MANTA_RETURN_IF_ERROR(copy(to, from, entry.bytes()));
      if (options_.checksums) entry.set_checksum(Hash64::Of(to, entry.bytes()));
      continue;
    }
    Hash64 hash;
    for (uint64_t at = 0; at < entry.bytes(); at += kCopyBytes) {
      const size_t n = std::min<uint64_t>(kCopyBytes, entry.bytes() - at);
      std::memcpy(to + at, from + at, n);
      if (options_.checksums) hash.Update(from + at, n);
    }
    if (options_.checksums) entry.set_checksum(hash.Finish());
  }
  return made;
}

// Makes room for a version, and takes over the memory of the one that goes where nobody else refers to it.
std::shared_ptr<Segment> WeightStore::TakeFreeSegment(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<const WeightVersion> gone;
  while (versions_.size() >= static_cast<size_t>(std::max(options_.max_versions, 2))) {
    gone = std::move(versions_.front());
    versions_.pop_front();
  }
  // A lease or a Fetch in progress holds the version as well.
  if (gone == nullptr || gone.use_count() != 1) return nullptr;
  if (gone->segment->bytes() < bytes || gone->segment->bytes() > 2 * bytes) return nullptr;
  return gone->segment;
}

absl::StatusOr<std::shared_ptr<const WeightVersion>> WeightStore::Get(uint64_t version) const {
  absl::MutexLock lock(&mutex_);
  const uint64_t wanted = version == 0 ? newest_ : version;
  for (const auto& held : versions_) {
    if (held->manifest.version() == wanted) return held;
  }
  if (wanted != 0 && wanted == newest_) {
    return absl::AbortedError(
        absl::StrCat("rank ", options_.rank, " is replacing weight version ", newest_, ": ask again"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", options_.rank, " does not hold weight version ", version, "; its newest is ", newest_));
}

absl::StatusOr<std::shared_ptr<const WeightVersion>> WeightStore::GetWithLease(uint64_t version) {
  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<const WeightVersion> held, Get(version));
  absl::MutexLock lock(&mutex_);
  leases_.push_back(held);
  // Of versions that are held anyway a lease costs nothing; of others it keeps memory.
  size_t extra = 0;
  for (auto it = leases_.rbegin(); it != leases_.rend();) {
    const bool kept = std::find(versions_.begin(), versions_.end(), *it) != versions_.end();
    if (!kept && ++extra > kMaxLeases) {
      it = std::make_reverse_iterator(leases_.erase(std::next(it).base()));
    } else {
      ++it;
    }
  }
  while (leases_.size() > 1024) leases_.pop_front();
  return held;
}

void WeightStore::ReleaseLease(uint64_t version, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  for (auto it = leases_.begin(); it != leases_.end(); ++it) {
    if ((*it)->manifest.version() == version && (*it)->segment->path() == path) {
      leases_.erase(it);
      return;
    }
  }
}

}  // namespace manta::comm

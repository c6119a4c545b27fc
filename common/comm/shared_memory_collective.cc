#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/comm/cpu_collective_base.h"
#include "common/comm/reduce.h"
#include "common/comm/transports.h"

namespace manta::comm {
namespace {

constexpr size_t kSlotBytes = 512 << 10;     // a rank's piece; two of them alternate
constexpr size_t kSmallBytes = 8 << 10;      // up to here every rank reduces everything itself: one wait instead of two
constexpr size_t kMailboxBytes = 128 << 10;  // of an ordered pair of ranks; a power of two
constexpr int kSpins = 30;                   // about a microsecond: longer starves others where cores are few
constexpr absl::Duration kLivenessPeriod = absl::Milliseconds(20);

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free);

// A counter that others wait on. `waiters` spares the writer a system call when nobody sleeps.
struct alignas(64) Event {
  Word value;
  Word waiters;
};

struct alignas(64) RankHeader {
  Event phase;               // waits that this rank has arrived at
  CallDescription calls[2];  // by parity of phase
  Word aborted;              // this rank has given up; `reason` is set before
  char reason[184];
};

struct alignas(64) Mailbox {
  Event head;  // bytes written, modulo 2^32
  Event tail;  // bytes read
  std::byte data[kMailboxBytes];
};

size_t HeaderBytes(int size) {
  return (size * sizeof(RankHeader) + 4095) / 4096 * 4096;
}

void FutexWait(Word& word, uint32_t seen, absl::Duration time) {
  const timespec relative = absl::ToTimespec(time);
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &relative, nullptr, 0);
}
void FutexWakeAll(Word& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Publish(Event& event, uint32_t value) {
  event.value.store(value, std::memory_order_seq_cst);
  if (event.waiters.load(std::memory_order_seq_cst) != 0) FutexWakeAll(event.value);
}

class SharedMemoryCollective final : public CpuCollectiveBase {
 public:
  SharedMemoryCollective(const CpuCollectiveOptions& options, Group group, std::byte* segment)
      : CpuCollectiveBase(options.rank, options.size, options.timeout), group_(std::move(group)), segment_(segment) {}

  ~SharedMemoryCollective() override { munmap(segment_, SharedSegmentBytes(size())); }

  absl::Status AllReduce(void* data, size_t count, DataType type, ReduceOp op) override {
    MANTA_RETURN_IF_ERROR(Begin());
    const CallDescription call = Describe(CallDescription::kAllReduce, count, type, op);
    auto* bytes = static_cast<std::byte*>(data);
    const size_t width = SizeOf(type);
    if (count * width <= kSmallBytes) {
      std::memcpy(Slot(rank()), bytes, count * width);
      MANTA_RETURN_IF_ERROR(Meet(call));
      ReduceInOrder(Sources(0), count, type, op, bytes);
      NextSlots();
      return absl::OkStatus();
    }
    const size_t step = kSlotBytes / width;
    for (size_t begin = 0; begin < count; begin += step) {
      const size_t n = std::min(step, count - begin);
      std::memcpy(Slot(rank()), bytes + begin * width, n * width);
      MANTA_RETURN_IF_ERROR(Meet(call));
      // Rank r reduces the r-th part, in its own slot, where no other rank reads that part before the next wait.
      const size_t mine = n * rank() / size(), mine_end = n * (rank() + 1) / size();
      if (mine_end > mine) {
        ReduceInOrder(Sources(mine * width), mine_end - mine, type, op, Slot(rank()) + mine * width);
      }
      MANTA_RETURN_IF_ERROR(Meet(call));
      for (int r = 0; r < size(); ++r) {
        const size_t from = n * r / size(), to = n * (r + 1) / size();
        std::memcpy(bytes + (begin + from) * width, Slot(r) + from * width, (to - from) * width);
      }
      NextSlots();
    }
    return absl::OkStatus();
  }

  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    MANTA_RETURN_IF_ERROR(Begin());
    MANTA_CHECK(root >= 0 && root < size()) << "root " << root;
    const CallDescription call = Describe(CallDescription::kBroadcast, bytes, DataType::kF32, ReduceOp::kSum, root);
    auto* at = static_cast<std::byte*>(data);
    for (size_t begin = 0; begin < bytes || begin == 0; begin += kSlotBytes) {
      const size_t n = std::min(kSlotBytes, bytes - begin);
      if (rank() == root) std::memcpy(Slot(root), at + begin, n);
      MANTA_RETURN_IF_ERROR(Meet(call));
      if (rank() != root) std::memcpy(at + begin, Slot(root), n);
      NextSlots();
    }
    return absl::OkStatus();
  }

  absl::Status AllGather(const void* in, size_t bytes, void* out) override {
    MANTA_RETURN_IF_ERROR(Begin());
    const CallDescription call = Describe(CallDescription::kAllGather, bytes);
    const auto* from = static_cast<const std::byte*>(in);
    auto* to = static_cast<std::byte*>(out);
    for (size_t begin = 0; begin < bytes || begin == 0; begin += kSlotBytes) {
      const size_t n = std::min(kSlotBytes, bytes - begin);
      std::memcpy(Slot(rank()), from + begin, n);
      MANTA_RETURN_IF_ERROR(Meet(call));
      for (int r = 0; r < size(); ++r) std::memcpy(to + r * bytes + begin, Slot(r), n);
      NextSlots();
    }
    return absl::OkStatus();
  }

  absl::Status ReduceScatter(const void* in, size_t count, void* out, DataType type, ReduceOp op) override {
    MANTA_RETURN_IF_ERROR(Begin());
    const CallDescription call = Describe(CallDescription::kReduceScatter, count, type, op);
    const auto* from = static_cast<const std::byte*>(in);
    const size_t width = SizeOf(type), step = kSlotBytes / size() / width;
    for (size_t begin = 0; begin < count || begin == 0; begin += step) {
      const size_t n = std::min(step, count - begin);
      for (int r = 0; r < size(); ++r) {
        std::memcpy(Slot(rank()) + r * n * width, from + (r * count + begin) * width, n * width);
      }
      MANTA_RETURN_IF_ERROR(Meet(call));
      if (n > 0) {
        ReduceInOrder(Sources(rank() * n * width), n, type, op, static_cast<std::byte*>(out) + begin * width);
      }
      NextSlots();
    }
    return absl::OkStatus();
  }

  absl::Status Barrier() override {
    MANTA_RETURN_IF_ERROR(Begin());
    return Meet(Describe(CallDescription::kBarrier, 0));
  }

  absl::Status Send(const void* data, size_t bytes, int to) override {
    MANTA_RETURN_IF_ERROR(BeginPointToPoint());
    MANTA_CHECK(to >= 0 && to < size() && to != rank()) << "send to " << to;
    const uint64_t length = bytes;
    Mailbox& box = MailboxOf(rank(), to);
    MANTA_RETURN_IF_ERROR(Put(box, &length, sizeof(length), to));
    return Put(box, data, bytes, to);
  }

  absl::Status Recv(void* data, size_t bytes, int from) override {
    MANTA_RETURN_IF_ERROR(BeginPointToPoint());
    MANTA_CHECK(from >= 0 && from < size() && from != rank()) << "receive from " << from;
    uint64_t length = 0;
    Mailbox& box = MailboxOf(from, rank());
    MANTA_RETURN_IF_ERROR(Take(box, &length, sizeof(length), from));
    if (length != bytes) {
      return GiveUp(absl::FailedPreconditionError(
          absl::StrCat("rank ", rank(), " expects ", bytes, " bytes where rank ", from, " sends ", length)));
    }
    return Take(box, data, bytes, from);
  }

  absl::Status CheckPeers() override {
    if (failed()) return error();
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      if (Header(r).aborted.load(std::memory_order_acquire) != 0) return GiveUp(TheirReason(r));
      if (PeerClosed(group_.peers[r])) return GiveUp(PeerGone(r, "its connection is closed"));
    }
    return absl::OkStatus();
  }

  void Abort(std::string_view reason) override {
    (void)GiveUp(absl::CancelledError(absl::StrCat("collective aborted: ", std::string(reason))));
  }

 private:
  RankHeader& Header(int rank) const { return reinterpret_cast<RankHeader*>(segment_)[rank]; }
  std::byte* Slot(int rank) const {
    return segment_ + HeaderBytes(size()) + (static_cast<size_t>(rank) * 2 + parity_) * kSlotBytes;
  }
  Mailbox& MailboxOf(int from, int to) const {
    std::byte* boxes = segment_ + HeaderBytes(size()) + static_cast<size_t>(size()) * 2 * kSlotBytes;
    return reinterpret_cast<Mailbox*>(boxes)[from * size() + to];
  }
  std::vector<const void*>& Sources(size_t offset) {
    sources_.resize(size());
    for (int r = 0; r < size(); ++r) sources_[r] = Slot(r) + offset;
    return sources_;
  }

  // A slot is written again two uses later. Whoever reached the wait between has stopped reading it.
  void NextSlots() { parity_ ^= 1; }

  // Every rank arrives here before any goes on; what each wrote before is then seen by all.
  absl::Status Meet(const CallDescription& call) {
    const uint32_t phase = ++phase_;
    RankHeader& own = Header(rank());
    own.calls[phase % 2] = call;
    Publish(own.phase, phase);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      MANTA_RETURN_IF_ERROR(
          Await(Header(r).phase, r, [&](uint32_t value) { return static_cast<int32_t>(value - phase) >= 0; }));
      // A faster rank's next call is in the other place, and it cannot be two calls ahead of us.
      if (const CallDescription& theirs = Header(r).calls[phase % 2]; theirs != call) {
        return GiveUp(Disagreement(rank(), call, r, theirs));
      }
    }
    return absl::OkStatus();
  }

  template <typename Ready>
  absl::Status Await(Event& event, int peer, const Ready& ready) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (ready(event.value.load(std::memory_order_acquire))) return absl::OkStatus();
      __builtin_ia32_pause();
    }
    event.waiters.fetch_add(1, std::memory_order_seq_cst);
    absl::Status status = Sleep(event, peer, ready);
    event.waiters.fetch_sub(1, std::memory_order_seq_cst);
    return status;
  }

  template <typename Ready>
  absl::Status Sleep(Event& event, int peer, const Ready& ready) {
    for (;;) {
      const uint32_t value = event.value.load(std::memory_order_seq_cst);
      if (ready(value)) return absl::OkStatus();
      if (failed()) return error();
      for (int r = 0; r < size(); ++r) {
        if (r != rank() && Header(r).aborted.load(std::memory_order_acquire) != 0) return GiveUp(TheirReason(r));
      }
      const absl::Duration left = deadline() - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return GiveUp(absl::DeadlineExceededError(
            absl::StrCat("rank ", rank(), " waited ", absl::FormatDuration(timeout()), " for rank ", peer)));
      }
      if (PeerClosed(group_.peers[peer])) {
        // It may have done its part, or said why, just before it went.
        if (ready(event.value.load(std::memory_order_seq_cst))) return absl::OkStatus();
        if (Header(peer).aborted.load(std::memory_order_acquire) != 0) return GiveUp(TheirReason(peer));
        return GiveUp(PeerGone(peer, "its connection is closed"));
      }
      FutexWait(event.value, value, std::min(left, kLivenessPeriod));
    }
  }

  absl::Status TheirReason(int peer) const {
    const RankHeader& header = Header(peer);
    return absl::CancelledError(absl::StrCat("rank ", peer, " gave up: ", std::string(header.reason)));
  }

  // The group ends: others see it at once.
  absl::Status GiveUp(const absl::Status& status) {
    const absl::Status first = Fail(status);
    absl::MutexLock lock(&abort_mutex_);
    RankHeader& own = Header(rank());
    if (own.aborted.load(std::memory_order_relaxed) == 0) {
      const size_t n = std::min(first.message().size(), sizeof(own.reason) - 1);
      std::memcpy(own.reason, first.message().data(), n);
      own.reason[n] = '\0';
      own.aborted.store(1, std::memory_order_release);
    }
    for (int r = 0; r < size(); ++r) FutexWakeAll(Header(r).phase.value);
    return first;
  }

  absl::Status Put(Mailbox& box, const void* data, size_t bytes, int to) {
    const auto* at = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      const uint32_t head = box.head.value.load(std::memory_order_relaxed);
      uint32_t room = 0;
      MANTA_RETURN_IF_ERROR(Await(box.tail, to, [&](uint32_t tail) {
        room = static_cast<uint32_t>(kMailboxBytes) - (head - tail);
        return room > 0;
      }));
      const size_t place = head % kMailboxBytes;
      const size_t n = std::min({bytes, static_cast<size_t>(room), kMailboxBytes - place});
      std::memcpy(box.data + place, at, n);
      Publish(box.head, head + static_cast<uint32_t>(n));
      at += n;
      bytes -= n;
    }
    return absl::OkStatus();
  }

  absl::Status Take(Mailbox& box, void* data, size_t bytes, int from) {
    auto* at = static_cast<std::byte*>(data);
    while (bytes > 0) {
      const uint32_t tail = box.tail.value.load(std::memory_order_relaxed);
      uint32_t there = 0;
      MANTA_RETURN_IF_ERROR(Await(box.head, from, [&](uint32_t head) {
        there = head - tail;
        return there > 0;
      }));
      const size_t place = tail % kMailboxBytes;
      const size_t n = std::min({bytes, static_cast<size_t>(there), kMailboxBytes - place});
      std::memcpy(at, box.data + place, n);
      Publish(box.tail, tail + static_cast<uint32_t>(n));
      at += n;
      bytes -= n;
    }
    return absl::OkStatus();
  }

  Group group_;
  std::byte* const segment_;
  uint32_t phase_ = 0;
  int parity_ = 0;
  std::vector<const void*> sources_;
  absl::Mutex abort_mutex_;
};

}  // namespace

size_t SharedSegmentBytes(int size) {
  const size_t n = static_cast<size_t>(size);
  return HeaderBytes(size) + n * 2 * kSlotBytes + n * n * sizeof(Mailbox);
}

absl::StatusOr<std::unique_ptr<Collective>> NewSharedMemoryCollective(const CpuCollectiveOptions& options,
                                                                      Group group) {
  void* segment =
      mmap(nullptr, SharedSegmentBytes(options.size), PROT_READ | PROT_WRITE, MAP_SHARED, group.shared_memory.get(), 0);
  if (segment == MAP_FAILED) {
    return absl::InternalError(absl::StrCat("cannot map the group's shared memory: ", std::strerror(errno)));
  }
  group.shared_memory.Close();  // the mapping keeps it
  return std::make_unique<SharedMemoryCollective>(options, std::move(group), static_cast<std::byte*>(segment));
}

}  // namespace manta::comm

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/comm/cpu_collective_base.h"
#include "common/comm/reduce.h"
#include "common/comm/transports.h"

namespace manta::comm {
namespace {

constexpr size_t kSmallBytes =
    16 << 10;  // up to here everybody sends everything to everybody: one round instead of two
constexpr size_t kPartBytes =
    512 << 10;  // of a larger array, what one rank reduces at a time: bounds the scratch memory

// What goes before the bytes of a transfer.
struct Header {
  static constexpr uint32_t kMagic = 0x4d4e5441;
  uint64_t magic = kMagic;
  CallDescription call;
  uint64_t bytes = 0;
};

// One direction of an exchange with one peer.
struct Transfer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  size_t header_done = 0;
  size_t done = 0;
  bool wanted = false;
  Header header;

  void Set(const void* to, size_t n) {
    *this = Transfer();
    data = static_cast<std::byte*>(const_cast<void*>(to));
    bytes = n;
    wanted = true;
  }
  bool finished() const { return !wanted || (header_done == sizeof(Header) && done == bytes); }
};

class SocketCollective final : public CpuCollectiveBase {
 public:
  SocketCollective(const CpuCollectiveOptions& options, Group group, Fd wake)
      : CpuCollectiveBase(options.rank, options.size, options.timeout),
        group_(std::move(group)),
        wake_(std::move(wake)),
        sends_(options.size),
        recvs_(options.size) {}

  absl::Status AllReduce(void* data, size_t count, DataType type, ReduceOp op) override {
    MANTA_RETURN_IF_ERROR(Begin());
    const CallDescription call = Describe(CallDescription::kAllReduce, count, type, op);
    auto* bytes = static_cast<std::byte*>(data);
    const size_t width = SizeOf(type);
    if (count * width <= kSmallBytes) {
      MANTA_RETURN_IF_ERROR(ExchangeEqual(call, bytes, count * width));
      if (count > 0) ReduceInOrder(Sources(bytes, count * width), count, type, op, bytes);
      return absl::OkStatus();
    }
    const size_t step = kPartBytes / width * size();
    for (size_t begin = 0; begin < count; begin += step) {
      const size_t n = std::min(step, count - begin);
      std::byte* piece = bytes + begin * width;
      const auto part = [&](int r) { return n * r / size() * width; };  // rank r's part of the piece begins here
      const size_t mine = part(rank() + 1) - part(rank());
      scratch_.resize(mine * size());
      ForPeers([&](int r) {
        sends_[r].Set(piece + part(r), part(r + 1) - part(r));
        recvs_[r].Set(scratch_.data() + r * mine, mine);
      });
      MANTA_RETURN_IF_ERROR(Exchange(call));
      if (mine > 0) {
        ReduceInOrder(Sources(piece + part(rank()), mine), mine / width, type, op, piece + part(rank()));
      }
      ForPeers([&](int r) {
        sends_[r].Set(piece + part(rank()), mine);
        recvs_[r].Set(piece + part(r), part(r + 1) - part(r));
      });
      MANTA_RETURN_IF_ERROR(Exchange(call));
    }
    return absl::OkStatus();
  }

  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    MANTA_RETURN_IF_ERROR(Begin());
    MANTA_CHECK(root >= 0 && root < size()) << "root " << root;
    if (rank() == root) {
      ForPeers([&](int r) { sends_[r].Set(data, bytes); });
    } else {
      recvs_[root].Set(data, bytes);
    }
    return Exchange(Describe(CallDescription::kBroadcast, bytes, DataType::kF32, ReduceOp::kSum, root));
  }

  absl::Status AllGather(const void* in, size_t bytes, void* out) override {
    MANTA_RETURN_IF_ERROR(Begin());
    auto* to = static_cast<std::byte*>(out);
    if (bytes > 0) std::memmove(to + rank() * bytes, in, bytes);
    ForPeers([&](int r) {
      sends_[r].Set(to + rank() * bytes, bytes);
      recvs_[r].Set(to + r * bytes, bytes);
    });
    return Exchange(Describe(CallDescription::kAllGather, bytes));
  }

  absl::Status ReduceScatter(const void* in, size_t count, void* out, DataType type, ReduceOp op) override {
    MANTA_RETURN_IF_ERROR(Begin());
    const CallDescription call = Describe(CallDescription::kReduceScatter, count, type, op);
    const auto* from = static_cast<const std::byte*>(in);
    const size_t width = SizeOf(type), step = kPartBytes / width;
    for (size_t begin = 0; begin < count || begin == 0; begin += step) {
      const size_t n = std::min(step, count - begin), bytes = n * width;
      const auto part = [&](int r) { return from + (r * count + begin) * width; };
      scratch_.resize(bytes * size());
      ForPeers([&](int r) {
        sends_[r].Set(part(r), bytes);
        recvs_[r].Set(scratch_.data() + r * bytes, bytes);
      });
      MANTA_RETURN_IF_ERROR(Exchange(call));
      if (n > 0) {
        ReduceInOrder(Sources(part(rank()), bytes), n, type, op, static_cast<std::byte*>(out) + begin * width);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Barrier() override {
    MANTA_RETURN_IF_ERROR(Begin());
    return ExchangeEqual(Describe(CallDescription::kBarrier, 0), nullptr, 0);
  }

  absl::Status Send(const void* data, size_t bytes, int to) override {
    MANTA_RETURN_IF_ERROR(BeginPointToPoint());
    MANTA_CHECK(to >= 0 && to < size() && to != rank()) << "send to " << to;
    sends_[to].Set(data, bytes);
    return Exchange(PointToPoint(bytes));
  }

  absl::Status Recv(void* data, size_t bytes, int from) override {
    MANTA_RETURN_IF_ERROR(BeginPointToPoint());
    MANTA_CHECK(from >= 0 && from < size() && from != rank()) << "receive from " << from;
    recvs_[from].Set(data, bytes);
    return Exchange(PointToPoint(bytes));
  }

  absl::Status CheckPeers() override {
    if (failed()) return error();
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && PeerClosed(group_.peers[r])) return Fail(Lost(r));
    }
    return absl::OkStatus();
  }

  void Abort(std::string_view reason) override {
    (void)Fail(absl::CancelledError(absl::StrCat("collective aborted: ", std::string(reason))));
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    // Shutting the sockets down tells the peers, also when no call is in progress here.
    ForPeers([&](int r) { shutdown(group_.peers[r].get(), SHUT_RDWR); });
  }

 private:
  template <typename Function>
  void ForPeers(const Function& function) const {
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) function(r);
    }
  }

  // Calls between two ranks are not numbered: other ranks need not know of them.
  static CallDescription PointToPoint(size_t bytes) { return {0, CallDescription::kSend, 0, bytes, 0}; }

  // What every rank gave, in rank order: the own at `own`, others' in the scratch memory, `bytes` each.
  std::vector<const void*>& Sources(const std::byte* own, size_t bytes) {
    sources_.resize(size());
    for (int r = 0; r < size(); ++r) sources_[r] = r == rank() ? own : scratch_.data() + r * bytes;
    return sources_;
  }

  absl::Status ExchangeEqual(const CallDescription& call, std::byte* data, size_t bytes) {
    scratch_.resize(bytes * size());
    ForPeers([&](int r) {
      sends_[r].Set(data, bytes);
      recvs_[r].Set(scratch_.data() + r * bytes, bytes);
    });
    return Exchange(call);
  }

  // Runs the wanted transfers, all at once, and forgets them.
  absl::Status Exchange(const CallDescription& call) {
    ForPeers([&](int r) {
      sends_[r].header.call = call;
      sends_[r].header.bytes = sends_[r].bytes;
    });
    absl::Status status = Run(call);
    for (int r = 0; r < size(); ++r) sends_[r] = recvs_[r] = Transfer();
    if (!status.ok()) {
      status = Fail(status);
      ForPeers([&](int r) { shutdown(group_.peers[r].get(), SHUT_RDWR); });
    }
    return status;
  }

  absl::Status Run(const CallDescription& call) {
    for (;;) {
      std::vector<pollfd> polls = {{wake_.get(), POLLIN, 0}};
      std::vector<int> waiting;
      for (int r = 0; r < size(); ++r) {
        if (r == rank() || (sends_[r].finished() && recvs_[r].finished())) continue;
        MANTA_RETURN_IF_ERROR(Push(r));
        MANTA_RETURN_IF_ERROR(Pull(r, call));
        const short events =
            static_cast<short>((sends_[r].finished() ? 0 : POLLOUT) | (recvs_[r].finished() ? 0 : POLLIN));
        if (events == 0) continue;
        polls.push_back({group_.peers[r].get(), events, 0});
        waiting.push_back(r);
      }
      if (waiting.empty()) return absl::OkStatus();
      if (failed()) return error();
      const absl::Duration left = deadline() - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(absl::StrCat("rank ", rank(), " waited ", absl::FormatDuration(timeout()),
                                                        " in ", call.ToString(), " for rank(s) ",
                                                        absl::StrJoin(waiting, ", ")));
      }
      const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 1, 60000);
      if (poll(polls.data(), polls.size(), static_cast<int>(ms)) < 0 && errno != EINTR) {
        return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
      }
    }
  }

  absl::Status Lost(int peer) {
    if (failed()) return error();
    return PeerGone(peer, "its connection is closed");
  }

  absl::Status Push(int peer) {
    Transfer& t = sends_[peer];
    while (!t.finished()) {
      iovec parts[2] = {{reinterpret_cast<std::byte*>(&t.header) + t.header_done, sizeof(Header) - t.header_done},
                        {t.data + t.done, t.bytes - t.done}};
      msghdr message = {};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      const ssize_t n = sendmsg(group_.peers[peer].get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EAGAIN) return absl::OkStatus();
        if (errno == EINTR) continue;
        // What the peer said before it went may still be read: an answer, or the reason.
        return recvs_[peer].finished() ? Lost(peer) : absl::OkStatus();
      }
      const size_t of_header = std::min<size_t>(n, sizeof(Header) - t.header_done);
      t.header_done += of_header;
      t.done += n - of_header;
    }
    return absl::OkStatus();
  }

  absl::Status Pull(int peer, const CallDescription& call) {
    Transfer& t = recvs_[peer];
    while (!t.finished()) {
      const bool in_header = t.header_done < sizeof(Header);
      std::byte* at = in_header ? reinterpret_cast<std::byte*>(&t.header) + t.header_done : t.data + t.done;
      const size_t left = in_header ? sizeof(Header) - t.header_done : t.bytes - t.done;
      const ssize_t n = recv(group_.peers[peer].get(), at, left, MSG_DONTWAIT);
      if (n == 0) return Lost(peer);
      if (n < 0) {
        if (errno == EAGAIN) return absl::OkStatus();
        if (errno == EINTR) continue;
        return Lost(peer);
      }
      (in_header ? t.header_done : t.done) += n;
      if (in_header && t.header_done == sizeof(Header)) {
        if (t.header.magic != Header::kMagic) return absl::InternalError(absl::StrCat("rank ", peer, " sent garbage"));
        if (t.header.call != call || t.header.bytes != t.bytes) {
          return Disagreement(rank(), call, peer, t.header.call);
        }
      }
    }
    return absl::OkStatus();
  }

  Group group_;
  const Fd wake_;  // an eventfd: Abort was called
  std::vector<Transfer> sends_, recvs_;
  std::vector<std::byte> scratch_;
  std::vector<const void*> sources_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewSocketCollective(const CpuCollectiveOptions& options, Group group) {
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return absl::InternalError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return std::make_unique<SocketCollective>(options, std::move(group), std::move(wake));
}

}  // namespace manta::comm

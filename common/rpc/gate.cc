#include "common/rpc/gate.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/listen.h"
#include "common/rpc/refusals.h"

namespace manta::rpc {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(100);  // when there is no descriptor left
constexpr uint64_t kLeastOfAClient = 33;                    // bytes: HTTP/2's preface and the head of a SETTINGS frame

std::string HostOf(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  return getnameinfo(plain, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) == 0 ? host : "unknown";
}

}  // namespace

class Gate::Impl {
 public:
  Impl(int listener, const GateOptions& options) : options_(options), listener_(listener) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
      max_connections_ = static_cast<size_t>(std::min<uint64_t>(options.max_connections, files.rlim_cur / 4));
    }
  }
  ~Impl() {
    Close();
    close(epoll_);
    close(wake_);
  }

  void Open(std::function<void(int, int)> hand_over, std::function<void()> each_second) {
    hand_over_ = std::move(hand_over);
    each_second_ = std::move(each_second);
    Watch(listener_, EPOLLIN);
    Watch(wake_, EPOLLIN);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    thread_ = std::thread([this] { Loop(); });
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }

  void Close() {
    if (thread_.joinable()) {
      closing_ = true;
      const uint64_t one = 1;
      (void)!write(wake_, &one, sizeof(one));
      thread_.join();
    }
    for (const auto& entry : connections_) close(entry.first);
    connections_.clear();
    silent_.clear();
    if (listener_ >= 0) close(listener_);
    listener_ = -1;
  }

  int port() const { return PortOf(listener_); }
  int open_connections() const { return open_; }

 private:
  struct Connection {
    std::string host;
    absl::Time since;
    bool silent = true;                // no judgement yet; else handed over, and the key is a duplicate
    std::list<int>::iterator in_line;  // in silent_
  };

  void Watch(int fd, uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void Loop() {
    absl::Time next_second = absl::Now() + absl::Seconds(1);
    while (!closing_) {
      absl::Time until = next_second;
      if (!silent_.empty()) until = std::min(until, connections_[silent_.front()].since + options_.first_bytes);
      if (paused_until_.has_value()) until = std::min(until, *paused_until_);
      const int64_t wait = std::max<int64_t>(0, absl::ToInt64Milliseconds(until - absl::Now()) + 1);
      epoll_event events[64];
      const int count = epoll_wait(epoll_, events, 64, static_cast<int>(wait));
      for (int i = 0; i < count && !closing_; ++i) {
        const int fd = events[i].data.fd;
        if (fd == listener_) {
          Accept();
        } else if (fd != wake_) {
          Ready(fd);
        }
      }
      const absl::Time now = absl::Now();
      while (!silent_.empty() && now - connections_[silent_.front()].since >= options_.first_bytes) {
        Turn(silent_.front(), Refusal::kSlow, "it said too little within its time");
      }
      if (paused_until_.has_value() && now >= *paused_until_) {
        paused_until_.reset();
        Watch(listener_, EPOLLIN);
      }
      if (now >= next_second) {
        next_second = now + absl::Seconds(1);
        each_second_();
      }
    }
  }

  void Accept() {
    for (int i = 0; i < 64; ++i) {  // then the others have their turn
      sockaddr_storage address;
      socklen_t length = sizeof(address);
      const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          Refuse(Refusal::kTooManyConnections, absl::StrCat("because ", strerror(errno)));
          epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_, nullptr);
          paused_until_ = absl::Now() + kPause;
        }
        return;
      }
      Connection connection{.host = HostOf(address, length), .since = absl::Now(), .silent = true, .in_line = {}};
      Host& host = hosts_[connection.host];
      if (connections_.size() >= max_connections_ || host.all * 2 >= max_connections_) {
        Refuse(Refusal::kTooManyConnections, absl::StrCat("peer=", connection.host, " because ", connections_.size(),
                                                          " connections are open, ", host.all, " of them from there"));
        if (host.all == 0) hosts_.erase(connection.host);
        close(fd);
        continue;
      }
      ++host.all;
      ++host.silent;
      connection.in_line = silent_.insert(silent_.end(), fd);
      const std::string name = connection.host;
      connections_.emplace(fd, std::move(connection));
      Watch(fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
      Ready(fd);  // a client that has spoken already does not wait
      if (const auto it = hosts_.find(name);
          it != hosts_.end() && it->second.silent > options_.max_silent_per_address) {
        for (const int oldest : silent_) {
          if (connections_[oldest].host != name) continue;
          Turn(oldest, Refusal::kSlow, absl::StrCat("more than ", options_.max_silent_per_address, " from there wait"));
          break;
        }
      }
    }
  }

  void Ready(int fd) {
    const auto it = connections_.find(fd);
    if (it == connections_.end()) return;  // closed by an earlier event of the same round
    if (!it->second.silent) return HandedOverEnded(fd, it->second);
    unsigned char bytes[3];
    const ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_PEEK);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return Drop(fd);  // it left without a word
    constexpr unsigned char kHttp2[3] = {'P', 'R', 'I'}, kTls[2] = {0x16, 0x03};
    const auto begins = [&](const unsigned char* expected, size_t size) {
      return memcmp(bytes, expected, std::min<size_t>(size, static_cast<size_t>(count))) == 0;
    };
    const bool http2 = begins(kHttp2, 3), tls = begins(kTls, 2);
    if (!(options_.tls ? tls : http2)) {
      const char* why = http2 ? "it speaks plain text where only TLS is served"
                        : tls ? "it speaks TLS where plain text over loopback is served"
                              : "it speaks something else";
      return Turn(fd, Refusal::kFirstBytes, why);
    }
    if (static_cast<size_t>(count) == (options_.tls ? 2u : 3u) || count == 3) HandOver(fd);
  }

  void HandOver(int fd) {
    const int duplicate = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (duplicate < 0) return Turn(fd, Refusal::kTooManyConnections, strerror(errno));
    epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    Connection connection = std::move(connections_[fd]);
    connections_.erase(fd);
    silent_.erase(connection.in_line);
    --hosts_[connection.host].silent;
    connection.silent = false;
    connections_.emplace(duplicate, std::move(connection));
    ++open_;
    hand_over_(fd, listener_);
    // Both directions are shut down by gRPC before it closes, and by the kernel when the peer resets: EPOLLHUP. Watched
    // only now, since a descriptor that is handed over may already be in that state.
    Watch(duplicate, EPOLLET);
  }

  void HandedOverEnded(int fd, const Connection& connection) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    // Less than what opens HTTP/2: gRPC's own time for it has passed.
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_bytes_received < kLeastOfAClient &&
        absl::Now() - connection.since >= options_.first_bytes * 0.8) {
      Refuse(Refusal::kSlow, absl::StrCat("peer=", connection.host, " because it sent ", info.tcpi_bytes_received,
                                          " bytes within its time"));
    }
    --open_;
    Drop(fd);
  }

  void Turn(int fd, Refusal reason, absl::string_view why) {
    Refuse(reason, absl::StrCat("peer=", connections_[fd].host, " because ", why));
    Drop(fd);
  }

  void Drop(int fd) {
    const Connection& connection = connections_[fd];
    const auto host = hosts_.find(connection.host);
    --host->second.all;
    if (connection.silent) {
      --host->second.silent;
      silent_.erase(connection.in_line);
    }
    if (host->second.all == 0) hosts_.erase(host);
    connections_.erase(fd);
    close(fd);
  }

  struct Host {
    size_t all = 0;
    int silent = 0;
  };

  const GateOptions options_;
  size_t max_connections_ = static_cast<size_t>(options_.max_connections);
  int listener_, epoll_, wake_;
  std::function<void(int, int)> hand_over_;
  std::function<void()> each_second_;
  std::thread thread_;
  std::atomic<bool> closing_ = false;
  std::atomic<int> open_ = 0;
  // The thread's:
  absl::flat_hash_map<int, Connection> connections_;
  absl::flat_hash_map<std::string, Host> hosts_;
  std::list<int> silent_;  // oldest first
  std::optional<absl::Time> paused_until_;
};

absl::StatusOr<std::unique_ptr<Gate>> Gate::Listen(const std::string& address, const GateOptions& options) {
  MANTA_ASSIGN_OR_RETURN(const int listener, ListenOn(address));
  return std::unique_ptr<Gate>(new Gate(std::make_unique<Impl>(listener, options)));
}

Gate::Gate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gate::~Gate() = default;
int Gate::port() const {
  return impl_->port();
}
void Gate::Open(std::function<void(int fd, int listener)> hand_over, std::function<void()> each_second) {
  impl_->Open(std::move(hand_over), std::move(each_second));
}
void Gate::Close() {
  impl_->Close();
}
int Gate::open_connections() const {
  return impl_->open_connections();
}

}  // namespace manta::rpc

#include "common/comm/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace manta::comm {
namespace {

constexpr char kUnixPrefix[] = "unix:@";
constexpr size_t kMaxMessage = 1 << 20;

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

absl::Status SystemError(const std::string& what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOENT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ETIMEDOUT:
    case EAGAIN:
      return absl::UnavailableError(message);
    case EADDRINUSE:
      return absl::AlreadyExistsError(message);
    case EADDRNOTAVAIL:
    case EACCES:
      return absl::InvalidArgumentError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<Address> Resolve(const std::string& text, bool passive) {
  Address address;
  if (absl::StartsWith(text, kUnixPrefix)) {
    auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
    const std::string name = text.substr(sizeof(kUnixPrefix) - 1);
    if (name.empty() || name.size() > sizeof(un->sun_path) - 1) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "': a socket's name has 1 to ",
                                                     sizeof(un->sun_path) - 1, " characters after 'unix:@'"));
    }
    un->sun_family = AF_UNIX;
    std::memcpy(un->sun_path + 1, name.data(), name.size());  // sun_path[0] == 0: abstract namespace
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
  }
  const size_t colon = text.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no address: expected host:port or unix:@name"));
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  int error = EAI_NONAME;
  for (const int family : {AF_INET, AF_INET6}) {  // of a name with both all ranks take the same
    hints.ai_family = family;
    error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
    if (error == 0) break;
  }
  if (error != 0 || found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("cannot resolve '", text, "': ", gai_strerror(error)));
  }
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

std::string ToText(const Address& address) {
  if (address.storage.ss_family == AF_UNIX) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&address.storage);
    const size_t header = offsetof(sockaddr_un, sun_path) + 1;
    return kUnixPrefix + std::string(un->sun_path + 1, address.length > header ? address.length - header : 0);
  }
  char host[INET6_ADDRSTRLEN] = "";
  if (address.storage.ss_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
    return absl::StrCat("[", host, "]:", ntohs(in6->sin6_port));
  }
  const auto* in = reinterpret_cast<const sockaddr_in*>(&address.storage);
  inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
  return absl::StrCat(host, ":", ntohs(in->sin_port));
}

Address LocalAddress(const Fd& fd) {
  Address address;
  address.length = sizeof(address.storage);
  getsockname(fd.get(), address.get(), &address.length);
  return address;
}

// A peer's machine that vanishes is noticed within about ten seconds; small messages leave at once.
void Tune(const Fd& fd) {
  const int on = 1, idle = 5, interval = 1, probes = 4, user_timeout_ms = 10000;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
}

absl::StatusOr<Fd> NewSocket(int family) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return SystemError("socket", errno);
  return fd;
}

absl::StatusOr<Fd> ListenAt(Address address, const std::string& text) {
  MANTA_ASSIGN_OR_RETURN(Fd fd, NewSocket(address.storage.ss_family));
  const int on = 1;
  if (address.storage.ss_family != AF_UNIX) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), address.get(), address.length) != 0 || listen(fd.get(), 1024) != 0) {
    return SystemError(absl::StrCat("cannot listen at '", text, "'"), errno);
  }
  return fd;
}

absl::Status WaitFor(const Fd& fd, short events, absl::Time deadline) {
  for (;;) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("the deadline passed");
    pollfd p = {fd.get(), events, 0};
    const int n = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 1, 60000)));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return SystemError("poll", errno);
  }
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Fd::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::StatusOr<Fd> Listen(const std::string& address) {
  MANTA_ASSIGN_OR_RETURN(Address resolved, Resolve(address, true));
  return ListenAt(resolved, address);
}

std::string BoundAddress(const Fd& listener) {
  return ToText(LocalAddress(listener));
}

absl::StatusOr<Fd> ListenBeside(const Fd& connection) {
  Address address = LocalAddress(connection);
  if (address.storage.ss_family == AF_UNIX) {
    address = Address();
    address.storage.ss_family = AF_UNIX;
    address.length = sizeof(sa_family_t);  // the kernel chooses an abstract name
  } else if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = 0;
  }
  return ListenAt(address, ToText(address));
}

absl::StatusOr<Fd> Connect(const std::string& address, absl::Time deadline) {
  MANTA_ASSIGN_OR_RETURN(Address resolved, Resolve(address, false));
  MANTA_ASSIGN_OR_RETURN(Fd fd, NewSocket(resolved.storage.ss_family));
  if (connect(fd.get(), resolved.get(), resolved.length) != 0) {
    if (errno != EINPROGRESS) return SystemError(absl::StrCat("cannot connect to '", address, "'"), errno);
    MANTA_RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline));
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return SystemError(absl::StrCat("cannot connect to '", address, "'"), error);
  }
  Tune(fd);
  return fd;
}

absl::StatusOr<Fd> ConnectRetrying(const std::string& address, absl::Time deadline) {
  absl::Duration pause = absl::Milliseconds(2);
  for (;;) {
    absl::StatusOr<Fd> fd = Connect(address, deadline);
    if (fd.ok() || !absl::IsUnavailable(fd.status())) return fd;
    if (absl::Now() + pause >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("nobody answered at '", address, "' in time: ", fd.status().message()));
    }
    absl::SleepFor(pause);
    pause = std::min(pause * 2, absl::Milliseconds(50));
  }
}

absl::StatusOr<Fd> Accept(const Fd& listener, absl::Time deadline) {
  for (;;) {
    Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      Tune(fd);
      return fd;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return SystemError("accept", errno);
    MANTA_RETURN_IF_ERROR(WaitFor(listener, POLLIN, deadline));
  }
}

absl::Status WriteAll(const Fd& fd, const void* data, size_t bytes, absl::Time deadline) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd.get(), at, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      at += n;
      bytes -= n;
    } else if (errno == EAGAIN) {
      MANTA_RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return SystemError("write", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadAll(const Fd& fd, void* data, size_t bytes, absl::Time deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd.get(), at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= n;
    } else if (n == 0) {
      return absl::UnavailableError("the other end is closed");
    } else if (errno == EAGAIN) {
      MANTA_RETURN_IF_ERROR(WaitFor(fd, POLLIN, deadline));
    } else if (errno != EINTR) {
      return SystemError("read", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status WriteMessage(const Fd& fd, const std::string& message, absl::Time deadline) {
  const uint32_t length = htonl(static_cast<uint32_t>(message.size()));
  std::string framed(reinterpret_cast<const char*>(&length), sizeof(length));
  framed += message;
  return WriteAll(fd, framed.data(), framed.size(), deadline);
}

absl::StatusOr<std::string> ReadMessage(const Fd& fd, absl::Time deadline) {
  uint32_t length = 0;
  MANTA_RETURN_IF_ERROR(ReadAll(fd, &length, sizeof(length), deadline));
  length = ntohl(length);
  if (length > kMaxMessage) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", length, " bytes is not one of ours"));
  }
  std::string message(length, '\0');
  MANTA_RETURN_IF_ERROR(ReadAll(fd, message.data(), length, deadline));
  return message;
}

bool PeerClosed(const Fd& fd) {
  char byte;
  const ssize_t n = recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace manta::comm

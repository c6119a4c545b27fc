#include "common/rpc/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::rpc {
namespace {

constexpr int kBacklog = 1024;

}  // namespace

absl::StatusOr<int> ListenOn(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return UserError(absl::StrCat(address, " is no HOST:PORT"));
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", gai_strerror(error)));
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int one = 1;
  bool ok = fd >= 0;
  if (ok) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));  // accepted sockets inherit it
    ok = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, kBacklog) == 0;
  }
  const int error = errno;
  freeaddrinfo(found);
  if (ok) return fd;
  if (fd >= 0) close(fd);
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": is the port in use? (", strerror(error), ")"));
}

int PortOf(int socket) {
  sockaddr_storage address;
  socklen_t length = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace manta::rpc

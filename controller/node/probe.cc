#include "controller/node/probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

namespace manta::node {
namespace {

bool Refuses(const addrinfo& target, absl::Duration limit) {
  const int fd = socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  int error = connect(fd, target.ai_addr, target.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd poll_fd{fd, POLLOUT, 0};
    if (poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) == 1) {
      socklen_t length = sizeof(error);
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    } else {
      error = ETIMEDOUT;
    }
  }
  close(fd);
  return error == ECONNREFUSED || error == ECONNRESET;
}

bool Refuses(const std::string& address, absl::Duration limit) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return false;
  bool refuses = found != nullptr;  // each of them
  for (const addrinfo* target = found; target != nullptr && refuses; target = target->ai_next) {
    refuses = Refuses(*target, limit);
  }
  freeaddrinfo(found);
  return refuses;
}

}  // namespace

void Probe(EventLoop& loop, const std::string& address, absl::Duration limit, std::function<void(bool)> done) {
  std::thread([poster = loop.poster(), address, limit, done = std::move(done)] {
    const bool refused = Refuses(address, limit);
    poster.Post([done, refused] { done(refused); });
  }).detach();
}

}  // namespace manta::node

#include "common/rpc/probe_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/listen.h"

namespace manta::rpc {
namespace {

constexpr size_t kMaxConnections = 32, kMaxRequest = 2048;
constexpr absl::Duration kTime = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeServer>> ProbeServer::Start(EventLoop& loop, Options options) {
  MANTA_ASSIGN_OR_RETURN(const int listener, ListenOn(options.listen));
  return std::unique_ptr<ProbeServer>(new ProbeServer(loop, std::move(options), listener, PortOf(listener)));
}

ProbeServer::ProbeServer(EventLoop& loop, Options options, int listener, int port)
    : loop_(loop), options_(std::move(options)), listener_(listener), port_(port) {
  loop_.WatchReadable(listener_, [this] { Accept(); });
}

ProbeServer::~ProbeServer() {
  loop_.Unwatch(listener_);
  close(listener_);
  while (!connections_.empty()) Drop(connections_.begin()->first);
}

void ProbeServer::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (connections_.size() >= kMaxConnections) {
    close(fd);
    return;
  }
  connections_[fd].timer = loop_.RunAfter(kTime, [this, fd] { Drop(fd); });
  loop_.WatchReadable(fd, [this, fd] { Read(fd); });
}

void ProbeServer::Read(int fd) {
  char bytes[1024];
  const ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  std::string& request = connections_[fd].request;
  if (count > 0) request.append(bytes, static_cast<size_t>(count));
  if (count <= 0 || request.size() > kMaxRequest) return Drop(fd);
  if (!absl::StrContains(request, "\r\n\r\n")) return;
  Answer(fd, request);
  Drop(fd);
}

void ProbeServer::Answer(int fd, const std::string& request) {
  std::string code = "200 OK", body = "ok\n";
  if (absl::StartsWith(request, "GET /readyz ")) {
    if (const absl::Status ready = options_.ready(); !ready.ok()) {
      code = "503 Service Unavailable";
      body = absl::StrCat(ready.message(), "\n");
    }
  } else if (!absl::StartsWith(request, "GET /healthz ")) {
    code = "404 Not Found";
    body = "only GET /healthz and GET /readyz are answered\n";
  }
  const std::string reply =
      absl::StrCat("HTTP/1.1 ", code, "\r\nContent-Type: text/plain\r\nContent-Length: ", body.size(),
                   "\r\nConnection: close\r\n\r\n", body);
  (void)!send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);  // a fresh socket's buffer holds it
}

void ProbeServer::Drop(int fd) {
  const auto it = connections_.find(fd);
  if (it == connections_.end()) return;
  loop_.Cancel(it->second.timer);
  loop_.Unwatch(fd);
  connections_.erase(it);
  close(fd);
}

}  // namespace manta::rpc

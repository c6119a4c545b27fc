#include "common/actor/shim_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"

namespace manta::actor {
namespace {

constexpr size_t kMaxPacket = 256 << 10;

}  // namespace

std::unique_ptr<ShimLink> ShimLink::FromEnvironment() {
  const char* text = std::getenv(kShimFdVariable);
  int fd = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &fd) || fd < 0) return nullptr;
  unsetenv(kShimFdVariable);
  int type = 0;
  socklen_t length = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) return nullptr;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return std::make_unique<ShimLink>(fd);
}

ShimLink::~ShimLink() {
  if (loop_ != nullptr) loop_->Unwatch(fd_);
  close(fd_);
}

void ShimLink::Watch(EventLoop& loop, std::function<void(const v1::WorkerOrder&)> on_order,
                     std::function<void()> on_gone) {
  loop_ = &loop;
  on_order_ = std::move(on_order);
  on_gone_ = std::move(on_gone);
  loop.WatchReadable(fd_, [this] { Read(); });
}

bool ShimLink::Send(const v1::WorkerReport& report) {
  const std::string bytes = report.SerializeAsString();
  ssize_t n;
  do {
    n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(bytes.size());
}

void ShimLink::Read() {
  std::string bytes(kMaxPacket, '\0');
  const ssize_t n = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) return;  // called again for what is left
  if (n <= 0) {
    loop_->Unwatch(fd_);
    loop_ = nullptr;
    if (const auto on_gone = on_gone_) on_gone();
    return;
  }
  v1::WorkerOrder order;
  if (!order.ParseFromArray(bytes.data(), static_cast<int>(n))) return;
  if (const auto on_order = on_order_) on_order(order);  // may destroy this
}

}  // namespace manta::actor

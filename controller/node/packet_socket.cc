#include "controller/node/packet_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <string>

namespace manta::node {

bool MakePacketSocket(int ends[2]) {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  const int bytes = 1 << 20;  // long argument lists; the system's bound may be lower
  for (int i = 0; i < 2; ++i) setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  return true;
}

bool SendMessage(int fd, const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  ssize_t n;
  do {
    n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(bytes.size());
}

Received ReceiveMessage(int fd, google::protobuf::MessageLite* message) {
  std::string bytes(size_t{1} << 20, '\0');
  ssize_t n;
  do {
    n = recv(fd, bytes.data(), bytes.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::kNothing;
  // An empty packet is no message of ours: zero bytes is the other end's close.
  if (n <= 0 || !message->ParseFromArray(bytes.data(), static_cast<int>(n))) return Received::kClosed;
  return Received::kMessage;
}

}  // namespace manta::node

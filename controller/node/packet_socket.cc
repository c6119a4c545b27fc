#include "controller/node/packet_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace manta::node {
namespace {

constexpr size_t kMaxDescriptors = 16;

// One a thread, reused: beats come often.
std::string& ReceiveBuffer() {
  static thread_local std::string buffer(kMaxPacketBytes, '\0');
  return buffer;
}

Received Receive(int fd, std::string_view* bytes, std::vector<int>* descriptors) {
  std::string& buffer = ReceiveBuffer();
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t n;
  do {
    // A peer that closes with packets of ours unread is told by ECONNRESET, once, before what it has sent itself.
    n = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::kNothing;
  if (n >= 0) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int received;
        std::memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        if (descriptors != nullptr) {
          descriptors->push_back(received);
        } else {
          close(received);
        }
      }
    }
  }
  // An empty packet is none of ours: zero bytes is the other end's close.
  if (n <= 0) return Received::kClosed;
  *bytes = std::string_view(buffer).substr(0, static_cast<size_t>(n));
  return Received::kMessage;
}

}  // namespace

bool MakePacketSocket(int ends[2]) {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  const int bytes = 1 << 20;  // long argument lists; the system's bound may be lower
  for (int i = 0; i < 2; ++i) setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  return true;
}

bool SendPacket(int fd, std::string_view bytes, const std::vector<int>& descriptors) {
  if (bytes.size() > kMaxPacketBytes || descriptors.size() > kMaxDescriptors) return false;
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size() * sizeof(int));
  }
  ssize_t n;
  do {
    n = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(bytes.size());
}

bool SendMessage(int fd, const google::protobuf::MessageLite& message, const std::vector<int>& descriptors) {
  return SendPacket(fd, message.SerializeAsString(), descriptors);
}

Received ReceivePacket(int fd, std::string* bytes, std::vector<int>* descriptors) {
  std::string_view view;
  const Received received = Receive(fd, &view, descriptors);
  if (received == Received::kMessage) bytes->assign(view);
  return received;
}

Received ReceiveMessage(int fd, google::protobuf::MessageLite* message, std::vector<int>* descriptors) {
  std::string_view view;
  const Received received = Receive(fd, &view, descriptors);
  if (received != Received::kMessage) return received;
  return message->ParseFromArray(view.data(), static_cast<int>(view.size())) ? received : Received::kClosed;
}

}  // namespace manta::node

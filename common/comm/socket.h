// Stream sockets with deadlines, as rendezvous and the socket collective need them: addresses "host:port", "[v6]:port" and
// "unix:@name" (abstract namespace). Internal to common/comm. Functions are thread-safe; one thread at a time uses a Socket.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace manta::comm {

// Owns a file descriptor; closes it.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// A non-blocking listening socket. Port 0 chooses one: see BoundAddress.
[[nodiscard]] absl::StatusOr<Fd> Listen(const std::string& address);
// The address that others connect to, in the form that Connect takes.
[[nodiscard]] std::string BoundAddress(const Fd& listener);
// A listener for peers that reached us through (or that we reached through) `connection`: same family, its local
// address, any free port or name.
[[nodiscard]] absl::StatusOr<Fd> ListenBeside(const Fd& connection);

// One attempt to connect; UNAVAILABLE where nobody listens (yet).
[[nodiscard]] absl::StatusOr<Fd> Connect(const std::string& address, absl::Time deadline);
// Tries again every few milliseconds until the deadline.
[[nodiscard]] absl::StatusOr<Fd> ConnectRetrying(const std::string& address, absl::Time deadline);
// DEADLINE_EXCEEDED when nobody came.
[[nodiscard]] absl::StatusOr<Fd> Accept(const Fd& listener, absl::Time deadline);

// All of the bytes, or UNAVAILABLE when the peer is gone, or DEADLINE_EXCEEDED.
[[nodiscard]] absl::Status WriteAll(const Fd& fd, const void* data, size_t bytes, absl::Time deadline);
[[nodiscard]] absl::Status ReadAll(const Fd& fd, void* data, size_t bytes, absl::Time deadline);

// A length and that many bytes; ReadMessage refuses more than 1 MiB.
[[nodiscard]] absl::Status WriteMessage(const Fd& fd, const std::string& message, absl::Time deadline);
[[nodiscard]] absl::StatusOr<std::string> ReadMessage(const Fd& fd, absl::Time deadline);

// True when the other end is closed and nothing unread is left.
[[nodiscard]] bool PeerClosed(const Fd& fd);

}  // namespace manta::comm

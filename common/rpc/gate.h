// Gate: accepts a server's connections, and lets through to gRPC only those that begin as a client of ours does.
//
// It listens, looks at the first three bytes of each connection without taking them ("PRI" of HTTP/2, or the beginning
// of a TLS handshake), and hands the descriptor over. Whoever says something else is closed at once, whoever says
// nothing within five seconds then; of one address 64 may be silent at a time (the oldest gives way), and one address
// holds at most half of the connections there are. It watches a duplicate of each descriptor that it handed over, so it
// knows how many are open. What it closes is counted and logged with the address (refusals.h).
//
// One thread, which blocks on nothing but epoll; `hand_over` and `each_second` run on it and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace manta::rpc {

struct GateOptions {
  bool tls = false;
  int max_connections = 4096;  // less where the limit of open files is low: a quarter of it
  int max_silent_per_address = 64;
  absl::Duration first_bytes = absl::Seconds(5);
};

class Gate {
 public:
  // Binds and listens; nothing is accepted before Open. UNAVAILABLE where the address cannot be bound.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Gate>> Listen(const std::string& address,
                                                                    const GateOptions& options);
  ~Gate();  // Close

  int port() const;

  // `hand_over` owns the descriptor that it is given (non-blocking, close-on-exec).
  void Open(std::function<void(int fd, int listener)> hand_over, std::function<void()> each_second);
  // Accepts no more, closes those that wait; those handed over stay.
  void Close();

  int open_connections() const;  // handed over, not yet closed

 private:
  class Impl;
  explicit Gate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::rpc

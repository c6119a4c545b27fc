// ProbeServer: answers a container platform's probes over HTTP: GET /healthz and GET /readyz, and nothing else.
//
// It runs on the process's EventLoop: that /healthz is answered at all says that the loop turns. 200 "ok", or 503 with
// the reason that the process gives. It carries no data and asks for no credentials, so it may listen beyond loopback;
// 32 connections at most, each for five seconds and 2 KiB of request. It belongs to the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/event_loop.h"

namespace manta::rpc {

class ProbeServer {
 public:
  struct Options {
    std::string listen;                   // "0.0.0.0:8080"
    std::function<absl::Status()> ready;  // OK: work can be sent here
  };
  // UNAVAILABLE where the address cannot be bound. The loop must outlive the server.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(EventLoop& loop, Options options);
  ~ProbeServer();

  int port() const { return port_; }

 private:
  struct Connection {
    std::string request;
    EventLoop::TimerId timer;
  };

  ProbeServer(EventLoop& loop, Options options, int listener, int port);
  void Accept();
  void Read(int fd);
  void Answer(int fd, const std::string& request);
  void Drop(int fd);

  EventLoop& loop_;
  const Options options_;
  const int listener_, port_;
  std::map<int, Connection> connections_;
};

}  // namespace manta::rpc

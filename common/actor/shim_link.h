// ShimLink: a worker's descriptor to its shim, by which the node agent and the head supervise it: the worker says that
// it is ready, beats, and reports progress; orders (stop, a lost peer, a fence, drain, stacks) come back. No
// connection, no thread.
//
//   auto link = actor::ShimLink::FromEnvironment();          // null where no shim has started this process
//   link->Watch(loop, [](const v1::WorkerOrder& order) { ... }, [] { /* the shim is gone: PDEATHSIG ends us anyway */
//   }); v1::WorkerReport report;  report.mutable_ready()->set_address(...);  link->Send(report);
//
// The descriptor's number is in MANTA_SHIM_FD. Send may be called from any thread, never blocks, and drops the report
// where the shim does not read (its queue is the socket's); Watch and the destructor belong to the loop's thread.
#pragma once

#include <functional>
#include <memory>

#include "common/base/event_loop.h"
#include "manta/v1/node.pb.h"

namespace manta::actor {

constexpr char kShimFdVariable[] = "MANTA_SHIM_FD";

class ShimLink {
 public:
  // Takes the descriptor and removes the variable, so that the worker's own children do not see it.
  static std::unique_ptr<ShimLink> FromEnvironment();
  explicit ShimLink(int fd) : fd_(fd) {}  // takes it
  ~ShimLink();
  ShimLink(const ShimLink&) = delete;
  ShimLink& operator=(const ShimLink&) = delete;

  void Watch(EventLoop& loop, std::function<void(const v1::WorkerOrder&)> on_order, std::function<void()> on_gone);
  // False where it was dropped.
  bool Send(const v1::WorkerReport& report);

 private:
  void Read();

  const int fd_;
  EventLoop* loop_ = nullptr;
  std::function<void(const v1::WorkerOrder&)> on_order_;
  std::function<void()> on_gone_;
};

}  // namespace manta::actor

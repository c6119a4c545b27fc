// Signals as events of a loop, rather than handlers that interrupt whatever runs.
//
//   BlockSignals({SIGINT, SIGTERM});   // in main, before any thread: threads inherit it
//   ...
//   SignalWatch watch(loop, {SIGINT, SIGTERM}, [&](int signal) { stop.Cancel(...); });
//
// A watch belongs to its loop's thread and must not outlive the loop.
#pragma once

#include <functional>
#include <initializer_list>

#include "common/base/event_loop.h"

namespace manta {

// For the calling thread and those that it starts from here on: the signals wait until a SignalWatch takes them.
void BlockSignals(std::initializer_list<int> signals);

class SignalWatch {
 public:
  // Calls `on_signal` with the number of each of `signals` that arrives. They must be blocked in every thread.
  SignalWatch(EventLoop& loop, std::initializer_list<int> signals, std::function<void(int)> on_signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  EventLoop& loop_;
  int fd_;
};

}  // namespace manta

#include "common/base/signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/check.h"

namespace manta {
namespace {

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void BlockSignals(std::initializer_list<int> signals) {
  const sigset_t set = SetOf(signals);
  MANTA_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
}

SignalWatch::SignalWatch(EventLoop& loop, std::initializer_list<int> signals, std::function<void(int)> on_signal)
    : loop_(loop) {
  const sigset_t set = SetOf(signals);
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  MANTA_CHECK(fd_ >= 0) << "signalfd: errno " << errno;
  loop_.WatchReadable(fd_, [fd = fd_, on_signal = std::move(on_signal)] {
    signalfd_siginfo info;
    // One an event: the callback may destroy this watch.
    if (read(fd, &info, sizeof(info)) == sizeof(info)) on_signal(static_cast<int>(info.ssi_signo));
  });
}

SignalWatch::~SignalWatch() {
  loop_.Unwatch(fd_);
  close(fd_);
}

}  // namespace manta

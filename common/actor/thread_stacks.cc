#include "common/actor/thread_stacks.h"

#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace manta::actor {
namespace {

constexpr int kFrames = 64;
std::atomic_flag writing = ATOMIC_FLAG_INIT;

// Async-signal-safe but for backtrace(), which InstallStackHandler has made load what it needs.
void WriteStack(int) {
  const int saved = errno;
  // One after the other, so that stacks do not mix; but never for ever.
  bool alone = false;
  for (int i = 0; i < 100000 && !(alone = !writing.test_and_set(std::memory_order_acquire)); ++i) sched_yield();
  char name[16] = "?";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  char line[96] = "stack of thread ";
  size_t n = std::strlen(line);
  char digits[24];
  size_t d = 0;
  for (auto id = static_cast<unsigned long>(syscall(SYS_gettid)); id > 0 && d < sizeof(digits); id /= 10) {
    digits[d++] = static_cast<char>('0' + id % 10);
  }
  while (d > 0) line[n++] = digits[--d];
  line[n++] = ' ';
  line[n++] = '(';
  std::memcpy(line + n, name, strnlen(name, sizeof(name)));
  n += strnlen(name, sizeof(name));
  std::memcpy(line + n, "):\n", 3);
  n += 3;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, n);
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  if (alone) writing.clear(std::memory_order_release);
  errno = saved;
}

}  // namespace

void InstallStackHandler() {
  void* frame[1];
  backtrace(frame, 1);
  struct sigaction action {};
  action.sa_handler = WriteStack;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
}

}  // namespace manta::actor

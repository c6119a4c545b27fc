// A worker for tests of the runtime: it does nothing, in the way that its argument says.
//   wait       until it is stopped             deaf      ignores SIGTERM and Stop
//   mute       never announces itself          exit N    ends with code N after saying why
//   abort      ends by SIGABRT after 300 ms    child     leaves a process of its own behind
//   flood      prints without end           write F   appends "EPOCH MILLISECONDS" to file F every 20 ms
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "common/actor/worker.h"

int main(int argc, char** argv) {
  auto worker = manta::actor::Worker::Create(argc, argv);
  if (!worker.ok()) return manta::actor::Fail(worker.status());
  const std::vector<std::string>& args = (*worker)->args();
  const std::string mode = args.empty() ? "wait" : args[0];
  std::fprintf(stderr, "%s says hello\n", (*worker)->actor_id().c_str());
  std::printf("%s speaks on stdout\n", (*worker)->actor_id().c_str());
  std::fflush(stdout);
  if (mode == "exit") {
    std::fprintf(stderr, "%s: error: nothing to do here\n", (*worker)->actor_id().c_str());
    return std::atoi(args.at(1).c_str());
  }
  if (mode == "deaf" || mode == "mute") {
    if (mode == "deaf") std::thread([&] { (*worker)->Run(); }).detach();
    if (mode == "deaf") absl::SleepFor(absl::Milliseconds(500));
    sigset_t set;
    sigfillset(&set);
    while (true) absl::SleepFor(absl::Seconds(1000));
  }
  if (mode == "abort" && (*worker)->rank() == 0) {
    std::thread([] {
      absl::SleepFor(absl::Milliseconds(300));
      std::fprintf(stderr, "something impossible has happened\n");
      std::abort();
    }).detach();
  }
  if (mode == "child" && fork() == 0) {
    setsid();
    while (true) pause();
  }
  if (mode == "flood") {
    std::thread([] {
      while (true) std::fprintf(stderr, "a line that says nothing, over and over, to fill the log as fast as it can\n");
    }).detach();
  }
  if (mode == "write") {
    std::thread([file = args.at(1), epoch = (*worker)->epoch()] {
      const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      while (true) {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        dprintf(fd, "%lu %lld\n", epoch, now.tv_sec * 1000LL + now.tv_nsec / 1000000);
        absl::SleepFor(absl::Milliseconds(20));
      }
    }).detach();
  }
  return (*worker)->Run();
}

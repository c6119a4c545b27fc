// The program of the shim tests: the tests, their launcher, and the workers that they start.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/shim_link.h"
#include "common/actor/thread_stacks.h"
#include "common/actor/zygote.h"
#include "common/base/event_loop.h"
#include "controller/node/launcher.h"
#include "gtest/gtest.h"

namespace manta::node {
namespace {

int Work(const std::string& mode) {
  EventLoop loop;
  auto link = actor::ShimLink::FromEnvironment();
  if (link == nullptr) return 9;
  int code = 0;
  link->Watch(
      loop,
      [&](const v1::WorkerOrder& order) {
        std::fprintf(stderr, "told to stop: %s\n", order.stop().reason().c_str());
        code = 5;
        loop.Stop();
      },
      [&] { loop.Stop(); });
  std::fprintf(stderr, "%s says hello\n", getenv("OWN"));
  if (mode == "eat") {
    for (std::vector<std::string> eaten;;) eaten.emplace_back(size_t{1} << 20, 'x');
  }
  if (mode == "write") {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::fprintf(stderr, "%d descriptors\n", static_cast<int>(limit.rlim_cur));
    std::ofstream file(absl::StrCat(::testing::TempDir(), "/written.", getpid()));
    unlink(absl::StrCat(::testing::TempDir(), "/written.", getpid()).c_str());
    for (int i = 0; i < 100; ++i) file << std::string(64 << 10, 'x') << std::flush;
  }
  if (mode == "deaf") signal(SIGTERM, SIG_IGN);
  v1::WorkerReport report;
  std::string address = absl::StrCat("of ", getenv("OWN"));
  if (mode == "child") {
    const pid_t child = fork();
    if (child == 0) {
      setsid();
      while (true) pause();
    }
    address = absl::StrCat(child);
  }
  if (mode == "hang") {
    actor::InstallStackHandler();
    std::thread([] { absl::SleepFor(absl::Hours(1)); }).detach();
  }
  report.mutable_ready()->set_address(address);
  link->Send(report);
  if (mode == "hang") absl::SleepFor(absl::Hours(1));
  if (mode == "compute" || mode == "silent") {  // one beat, and no more
    v1::WorkerReport beat;
    beat.mutable_beat()->set_completed(17);
    link->Send(beat);
    if (mode == "silent") absl::SleepFor(absl::Hours(1));
    while (getppid() > 1) continue;
  }
  if (mode == "brief") {
    loop.RunFor(absl::Milliseconds(400));
    return 6;
  }
  loop.Run();
  return code;
}

}  // namespace
}  // namespace manta::node

int main(int argc, char** argv) {
  if (getenv("THREADED") != nullptr) std::thread([] { absl::SleepFor(absl::Seconds(100)); }).detach();
  if (auto forked = manta::actor::MaybeServeAsZygote()) return manta::node::Work(forked->at(2));
  if (argc == 3 && std::string(argv[1]) == "--worker") return manta::node::Work(argv[2]);
  if (argc == 3 && std::string(argv[1]) == "--launcher") return manta::node::LauncherMain(argv[2], argc, argv);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

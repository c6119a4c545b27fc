// A head as a process, for tests that kill it: head_program RUN_DIR. It has no jobs of its own and takes none.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "controller/main/no_jobs_for_test.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

int Main(const std::filesystem::path& dir) {
  signal(SIGPIPE, SIG_IGN);
  // Its stdout has one line alone.
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("head", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  EventLoop loop;
  NoJobs jobs;
  HeadOptions options = LocalHeadOptions(dir);
  auto head = Head::Start(loop, std::move(options), &jobs, [&](const std::string&) { loop.Stop(); });
  if (!head.ok()) {
    std::fprintf(stderr, "head_program: error: %s\n", std::string(head.status().message()).c_str());
    return ExitCode(head.status());
  }
  std::printf("listening %s\n", (*head)->address().c_str());
  std::fflush(stdout);
  loop.Run();
  (*head)->StopServing(absl::Milliseconds(500));
  _exit(0);
}

}  // namespace
}  // namespace manta::controller

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  return manta::controller::Main(argv[1]);
}

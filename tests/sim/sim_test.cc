// The head under faults, seed by seed.
//
//   build/tests/sim_test                         seeds MANTA_SIM_FIRST (1) on, MANTA_SIM_SEEDS (200) of them, by
//                                                MANTA_SIM_PROCESSES (1) processes side by side
//   build/tests/sim_test --seed 17 --trace       one seed, with all that happens
//   build/tests/sim_test --real-agents 20        with so many agents of the real logic in each seed
//
// MANTA_FAULT builds it broken on purpose (see controller/core/core.h): sim_broken_test.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "spdlog/spdlog.h"
#include "tests/sim/world.h"

namespace manta::sim {
namespace {

uint64_t Env(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

uint64_t g_seed = 0;
bool g_trace = false;
int g_real = -1;
uint64_t g_executed = 0;  // calls

// Broken things of one seed, printed with its last events.
size_t RunSeed(uint64_t seed, const std::string& fault, bool trace, bool print, uint64_t* events) {
  // A quarter of the seeds has hosts whose agents are the real ones' logic beside the fake ones.
  const int real = g_real >= 0 ? g_real : seed % 8 < 2 ? 6 : 0;
  // In half of them its processes are called as well.
  const bool calls = seed % 2 == 0;
  World world(
      {.seed = seed, .real_agents = real, .calls = calls, .wild = seed % 8 == 4, .fault = fault, .trace = trace});
  const auto broken = world.Run();
  if (events != nullptr) *events += world.events();
  g_executed += world.executed();
  if (!broken.empty() && print) {
    for (const std::string& line : world.log()) std::printf("  %s\n", line.c_str());
    for (const std::string& what : broken) std::printf("BROKEN in seed %lu: %s\n", seed, what.c_str());
    std::printf("again: sim_test --seed %lu --trace\n", seed);
  }
  return broken.size();
}

// What the processes of one run share: each takes the next seed that nobody has.
struct Work {
  std::atomic<uint64_t> next{0}, failures{0}, events{0}, executed{0};
  std::array<std::atomic<uint64_t>, 64> failed{}, current{};  // seeds; by number of the failure, of the process
};
constexpr uint64_t kMostFailures = 3;

// Seeds up to `last`, until some have failed.
void TakeSeeds(Work& work, size_t process, uint64_t last, const std::string& fault, bool print) {
  uint64_t events = 0;
  for (uint64_t seed = work.next++; seed <= last && work.failures < kMostFailures; seed = work.next++) {
    work.current[process] = seed;
    if (RunSeed(seed, fault, g_trace, print, &events) > 0) work.failed[work.failures++ % work.failed.size()] = seed;
  }
  work.events += events;
  work.executed += std::exchange(g_executed, 0);
}

// A seed is a world of its own, so processes side by side change nothing of it.
TEST(Sim, NothingBreaksUnderFaults) {
  const uint64_t first = g_seed != 0 ? g_seed : Env("MANTA_SIM_FIRST", 1);
  const uint64_t count = g_seed != 0 ? 1 : Env("MANTA_SIM_SEEDS", 200);
  const uint64_t last = first + count - 1;
  const size_t processes = count == 1 ? 1 : std::clamp<size_t>(Env("MANTA_SIM_PROCESSES", 1), 1, 64);
  const char* value = std::getenv("MANTA_FAULT");
  const std::string fault = value == nullptr ? "" : value;
  void* shared = mmap(nullptr, sizeof(Work), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Work& work = *new (shared) Work;
  work.next = first;
  const auto before = std::chrono::steady_clock::now();
  std::vector<pid_t> others;
  std::fflush(nullptr);
  for (size_t process = 1; process < processes; ++process) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      TakeSeeds(work, process, last, fault, true);
      std::fflush(nullptr);
      _exit(0);
    }
    others.push_back(pid);
  }
  TakeSeeds(work, 0, last, fault, true);
  for (size_t i = 0; i < others.size(); ++i) {
    int status = -1;
    ASSERT_EQ(waitpid(others[i], &status, 0), others[i]);
    EXPECT_EQ(status, 0) << "the process that ran seed " << work.current[i + 1] << " has crashed";
  }
  for (uint64_t i = 0; i < std::min<uint64_t>(work.failures, work.failed.size()); ++i) {
    ADD_FAILURE() << "seed " << work.failed[i];
  }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  std::printf("seeds %lu to %lu: %.1f s, %.1f seeds/s in %zu processes, %lu events, %lu calls executed\n", first, last,
              s, static_cast<double>(count) / s, processes, work.events.load(), work.executed.load());
  munmap(shared, sizeof(Work));
}

class BrokenBuild : public ::testing::TestWithParam<const char*> {};

TEST_P(BrokenBuild, IsCaught) {
  if (g_seed != 0) GTEST_SKIP();
  const uint64_t limit = Env("MANTA_SIM_BROKEN_SEEDS", 2000);
  for (uint64_t seed = 1; seed <= limit; ++seed) {
    if (RunSeed(seed, GetParam(), false, false, nullptr) == 0) continue;
    std::printf("%s is caught by seed %lu\n", GetParam(), seed);
    return;
  }
  FAIL() << GetParam() << " was not noticed in " << limit << " seeds";
}
INSTANTIATE_TEST_SUITE_P(Sim, BrokenBuild,
                         ::testing::Values("no_fencing", "ack_before_commit", "free_slot_early", "no_sealing",
                                           "fences_ignored"));

}  // namespace
}  // namespace manta::sim

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) manta::sim::g_seed = std::strtoull(argv[++i], nullptr, 10);
    if (std::strcmp(argv[i], "--real-agents") == 0 && i + 1 < argc) manta::sim::g_real = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--trace") == 0) manta::sim::g_trace = true;
  }
  spdlog::set_level(manta::sim::g_trace ? spdlog::level::info : spdlog::level::off);
  return RUN_ALL_TESTS();
}

// The controller's own calls over its kills: five hundred a second, and kill -9 twenty times among them. Each call's number
// is in the actor's own file as often as it ran.
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/integration/runtime_job.h"

namespace manta::testing {
namespace {

// number -> what is said of it, a line each.
std::map<int, std::vector<std::string>> Lines(const std::filesystem::path& path) {
  std::map<int, std::vector<std::string>> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t blank = line.find(' ');
    int number = -1;
    EXPECT_TRUE(absl::SimpleAtoi(line.substr(0, blank), &number)) << line;
    lines[number].push_back(blank == std::string::npos ? "" : line.substr(blank + 1));
  }
  return lines;
}

TEST(DurableCallsTest, TwentyKillsNothingTwiceNothingLost) {
  constexpr int kKills = 20, kRate = 500;
  // A kill costs about half a second without calls.
  constexpr int kCalls = kRate * 12;
  const std::filesystem::path files =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("durable-calls-", getpid());
  std::filesystem::create_directories(files);
  RuntimeJob job(absl::StrCat("calls ", (files / "executed").string(), " ", (files / "told").string(), " ", kCalls, " ", kRate, "\n"),
                 {"--on-controller-loss", "wait"});
  ASSERT_TRUE(job.WaitReady()) << job.Log("controller.log");
  int kills = 0;
  for (; kills < kKills; ++kills) {
    absl::SleepFor(absl::Milliseconds(400 + 17 * kills % 100));
    ASSERT_TRUE(job.controller().Signal(SIGKILL));
    ASSERT_TRUE(job.controller().WaitFor(absl::Seconds(5)).has_value());
    ASSERT_LT(Lines(files / "told").size(), size_t{kCalls}) << "all calls were made before the last kill";
    job.StartController();
  }
  const auto ended = job.WaitEnded(absl::Seconds(60));
  ASSERT_TRUE(ended.has_value()) << job.Log("controller.log");
  EXPECT_TRUE(ended->ok()) << *ended;

  const auto executed = Lines(files / "executed"), told = Lines(files / "told");
  int unknown = 0, twice_told = 0;
  for (const auto& [number, times] : executed) {
    EXPECT_EQ(times.size(), 1u) << "call " << number << " ran " << times.size() << " times";
    EXPECT_TRUE(told.contains(number)) << "call " << number << " ran, and nothing was told of it";
  }
  for (int number = 1; number <= kCalls; ++number) {
    ASSERT_TRUE(told.contains(number)) << "nothing was told of call " << number;
    const std::string& last = told.at(number).back();
    twice_told += told.at(number).size() > 1 ? 1 : 0;  // killed between telling and forgetting
    if (last == "OK") {
      EXPECT_TRUE(executed.contains(number)) << "call " << number << " was answered and did not run";
    } else {
      EXPECT_EQ(last, "CALL_OUTCOME_UNKNOWN") << number;
      ++unknown;
    }
  }
  std::printf("%d calls, %d kills: %zu ran, none twice; %d reported as unknown, %d told twice\n", kCalls, kills,
              executed.size(), unknown, twice_told);
  EXPECT_EQ(unknown, 0);  // the actor never died
  std::filesystem::remove_all(files);
}

}  // namespace
}  // namespace manta::testing

// manta-reward: the process of one reward worker. See common/actor/worker.h for its flags and its end; its own flag is
// --threads N, how many samples are scored at a time (by default as many as there are CPUs, at most 8). Called as
// `manta-reward --check VERIFIER JSON` it looks at an environment's options and serves nothing.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/actor/worker.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "worker_reward/service/batch.h"
#include "worker_reward/service/reward_service.h"
#include "worker_reward/verifiers/verifier.h"

namespace {

constexpr int kMaxThreads = 256;
constexpr size_t kQueuedCalls = 4096;

absl::StatusOr<int> Threads(const std::vector<std::string>& args) {
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
  for (size_t i = 0; i < args.size(); ++i) {
    std::string value;
    if (args[i] == "--threads" && i + 1 < args.size()) {
      value = args[++i];
    } else if (args[i].rfind("--threads=", 0) == 0) {
      value = args[i].substr(10);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", args[i], "; manta-reward has --threads N"));
    }
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), threads);
    if (error != std::errc() || end != value.data() + value.size() || threads < 1 || threads > kMaxThreads) {
      return absl::InvalidArgumentError(
          absl::StrCat("--threads must be a number from 1 to ", kMaxThreads, ", found \"", value, "\""));
    }
  }
  return threads;
}

// What `manta run --check` asks: are this verifier and the options in this tree of `env` (JSON) what a run can have? Says
// no by exit code 64 and a line "KEY: what is wrong", KEY being the tree's.
int Check(const std::string& verifier, const std::string& environment_json) {
  nlohmann::json options;
  absl::Status status = manta::reward::ReadOptions(environment_json, options);
  if (status.ok()) status = manta::reward::MakeVerifier(verifier, options).status();
  if (status.ok()) return 0;
  std::printf("%s: %s\n", absl::IsNotFound(status) ? "verifier" : "options", std::string(status.message()).c_str());
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--check") return Check(argv[2], argv[3]);
  auto worker = manta::actor::Worker::Create(argc, argv);
  if (!worker.ok()) return manta::actor::Fail(worker.status());
  const absl::StatusOr<int> threads = Threads((*worker)->args());
  if (!threads.ok()) return manta::actor::Fail(threads.status());
  manta::reward::RewardService service(&(*worker)->AddLane("score", *threads, kQueuedCalls), *threads);
  (*worker)->Register(&service);
  return (*worker)->Run();
}

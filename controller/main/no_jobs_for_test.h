// A head's jobs where there are none: for tests and benchmarks of the head itself. Thread-safe, since it does nothing.
#pragma once

#include <string>

#include "controller/main/head.h"

namespace manta::controller {

class NoJobs final : public Head::Jobs {
 public:
  void Attach(Head*) override {}
  void Run(const core::JobStart&) override {}
  void Stop(const std::string&, const absl::Status&) override {}
  absl::StatusOr<RunService::Runs::Run> Find(const std::string&) override { return absl::NotFoundError("no job"); }
  void Stop(const std::string&, const std::string&) override {}
};

// A head on a free port, with all that it keeps in `run_dir`.
inline HeadOptions LocalHeadOptions(const std::filesystem::path& run_dir) {
  return {.run_dir = run_dir, .token_file = run_dir / "token", .listen = "127.0.0.1:0", .journal_dir = {}, .core = {}};
}

}  // namespace manta::controller

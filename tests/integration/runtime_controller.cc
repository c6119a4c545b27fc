// A controller for tests of the runtime. Its "configuration" has a line a group: ROLE RANKS CPU_SLOTS [MODE [ARG]]; its
// algorithm starts them all and then waits to be stopped, or, after a line `seconds N`, for N seconds.
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "controller/main/run_controller.h"

namespace manta::controller {
namespace {

Task<absl::StatusOr<RunOutcome>> Wait(RunContext context) {
  context.events->set_algorithm("wait");
  std::ifstream file(context.config_path);
  std::vector<Task<absl::StatusOr<std::shared_ptr<Group>>>> starting;
  double seconds = 3600;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    GroupSpec spec;
    words >> spec.role;
    if (spec.role == "seconds") {
      words >> seconds;
      continue;
    }
    if (spec.role == "executable") {
      std::string path;
      words >> path;
      starting.push_back(context.cluster->StartGroup({.role = "odd", .executable = path}));
      continue;
    }
    words >> spec.num_ranks >> spec.cpu_slots_per_rank;
    for (std::string word; words >> word;) spec.args.push_back(word);
    spec.executable = (context.bin_dir / "runtime_worker").string();
    spec.start_deadline = absl::Seconds(5);
    starting.push_back(context.cluster->StartGroup(std::move(spec)));
  }
  auto groups = co_await WhenAll(std::move(starting));
  MANTA_CO_RETURN_IF_ERROR(FirstError(groups));
  context.events->Phase("waiting");
  MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*context.loop, absl::Seconds(seconds), context.stop));
  co_return RunOutcome{.checkpoint = "step_1", .summary = "waited"};
}

}  // namespace
}  // namespace manta::controller

int main(int argc, char** argv) {
  return manta::controller::ControllerMain(argc, argv, manta::controller::Wait);
}

// A controller for tests of the runtime. Its "configuration" has a line a group: ROLE RANKS CPU_SLOTS [MODE [ARG]]; its
// algorithm starts them all and then waits to be stopped, or, after a line `seconds N`, for N seconds. A line
// `calls EXECUTED TOLD COUNT RATE` makes it start a counting_actor that writes to the file EXECUTED, and make COUNT durable
// calls to it, RATE a second; what comes of each is a line of the file TOLD. It ends with the last.
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/call/core/outcome.h"
#include "controller/calls/durable_caller.h"
#include "controller/main/run_controller.h"

namespace manta::controller {
namespace {

struct Calls {
  std::string executed, told;
  int count = 0, rate = 0;
};

// The numbers in the file, whatever is told of them.
std::set<int> NumbersIn(const std::string& path) {
  std::set<int> numbers;
  std::ifstream file(path);
  int number;
  for (std::string line; std::getline(file, line);) {
    if (absl::SimpleAtoi(line.substr(0, line.find(' ')), &number)) numbers.insert(number);
  }
  return numbers;
}

void Tell(const std::string& path, const std::string& number, const absl::Status& status) {
  std::ofstream file(path, std::ios::app);
  file << number << " " << (status.ok() ? "OK" : v1::CallOutcome_Name(call::OutcomeOf(status))) << std::endl;
}

Task<absl::Status> MakeCalls(RunContext context, Calls calls) {
  GroupSpec spec;
  spec.role = "counter";
  spec.executable = (context.bin_dir / "counting_actor").string();
  spec.args = {calls.executed};
  spec.cpu_slots_per_rank = 1;
  MANTA_CO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> group, co_await context.cluster->StartGroup(std::move(spec)));
  context.events->Phase("waiting");
  const GroupMember& member = group->members()[0];
  const CallTarget target{member.actor_id, group->epoch(), member.address};

  // What the controllers before this one have left.
  std::set<int> known = NumbersIn(calls.told), again;
  const std::vector<DurableCaller::Resolved> left = co_await context.calls->Resolve(context.job);
  for (const DurableCaller::Resolved& resolved : left) {
    int number = 0;
    if (!absl::SimpleAtoi(resolved.key, &number)) co_return absl::InternalError(resolved.key);
    known.insert(number);
    if (call::OutcomeOf(resolved.reply.status()) == v1::CALL_OUTCOME_NOT_STARTED) {
      again.insert(number);
    } else {
      Tell(calls.told, resolved.key, resolved.reply.status());
    }
    context.calls->Forget(context.job, resolved.key);
  }
  context.events->Text(absl::StrCat(left.size(), " calls of an earlier controller, ", again.size(), " of them not started"));
  // Rows become durable in order: what is known is 1, 2, 3 ... without a gap.
  const int first = known.empty() ? 1 : *known.rbegin() + 1;
  for (int number = first; number <= calls.count; ++number) again.insert(number);
  const absl::Time begin = context.loop->Now();
  auto under_way = std::make_shared<int>(0);
  int made = 0;
  for (int number : again) {
    const absl::Duration wait = begin + absl::Seconds(1.0 * made++ / calls.rate) - context.loop->Now();
    if (wait > absl::ZeroDuration()) MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*context.loop, wait, context.stop));
    const std::string key = absl::StrCat(number);
    ++*under_way;
    Spawn(*context.loop, context.calls->Call(context.job, target, "count", key, key, absl::Seconds(5)),
          [context, calls, key, under_way](const absl::StatusOr<std::string>& reply) {
            Tell(calls.told, key, reply.status());
            context.calls->Forget(context.job, key);
            --*under_way;
          });
  }
  while (*under_way > 0) MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*context.loop, absl::Milliseconds(5), context.stop));
  co_return absl::OkStatus();
}

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
    if (spec.role == "calls") {
      Calls calls;
      words >> calls.executed >> calls.told >> calls.count >> calls.rate;
      MANTA_CO_RETURN_IF_ERROR(co_await MakeCalls(context, calls));
      co_return RunOutcome{.checkpoint = "", .summary = "called"};
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

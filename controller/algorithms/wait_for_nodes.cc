#include "controller/algorithms/wait_for_nodes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace manta::controller {
namespace {

std::string Names(const std::vector<JobCluster::NodeGpus>& nodes) {
  return absl::StrJoin(nodes, ", ", [](std::string* out, const JobCluster::NodeGpus& node) { absl::StrAppend(out, node.name); });
}

}  // namespace

Task<absl::Status> WaitForNodes(RunContext context, int count, absl::Duration patience) {
  const absl::Time until = context.loop->Now() + patience;
  int told = -1;
  while (true) {
    const std::vector<JobCluster::NodeGpus> nodes = context.cluster->nodes();
    const int joined = static_cast<int>(nodes.size());
    if (joined >= count) co_return absl::OkStatus();
    if (context.stop.cancelled()) co_return context.stop.status();
    if (told < 0 && count > 1) {  // for those who read it later
      context.events->Text(absl::StrCat("waiting for ", count, " nodes (cluster.num_nodes); there ", joined == 1 ? "is " : "are ",
                                        joined, joined == 0 ? "" : ": ", Names(nodes)));
    }
    if (joined != told && count > 1) {
      context.events->Phase(absl::StrCat("waiting for nodes: ", joined, " of ", count, " have joined"),
                            static_cast<double>(joined) / count);
    }
    const bool again = joined == told;
    told = joined;
    const absl::Duration left = until - context.loop->Now();
    if (left <= absl::ZeroDuration()) {
      co_return absl::DeadlineExceededError(
          absl::StrCat(joined, " of ", count, " nodes (cluster.num_nodes) have joined within ", absl::FormatDuration(patience),
                       " (cluster.wait_for_nodes_s)", joined == 0 ? "" : ": ", Names(nodes),
                       "; `manta join` brings a machine"));
    }
    // One that has come and gone again meanwhile is no reason to ask without a pause.
    if (again) MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*context.loop, absl::Milliseconds(200), context.stop));
    const absl::Status more = co_await context.cluster->WaitForNodes(joined + 1, left);
    if (!more.ok() && !absl::IsDeadlineExceeded(more)) co_return more;
  }
}

}  // namespace manta::controller

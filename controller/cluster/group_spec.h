// GroupSpec: what an algorithm asks for when it starts a group of workers (job_cluster.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace manta::controller {

struct GroupSpec {
  std::string role;  // letters, digits and '_'; its actors are called ROLE-RANK
  int num_ranks = 1;
  std::string executable;  // a path on every node
  std::vector<std::string> args;
  std::map<std::string, std::string> env;  // beside the agent's own environment
  int cpu_slots_per_rank = 0;
  int gpus_per_rank = 0;
  bool one_node = false;    // its ranks meet over one host's memory
  int ranks_per_node = 0;   // exactly so many on each of its nodes; 0: wherever there is room
  bool spread = false;      // as evenly over nodes as these have room
  int ports_per_rank = 0;   // on its node, leased for it: GroupMember::ports
  bool shares_gpu = false;  // ranks that hold no GPU see one of their node's beside whoever holds it
  absl::Duration placement_deadline = absl::Seconds(30);
  bool waits_for_nodes = false;  // until then, where no node has room for it: one that was lost may come back
  absl::Duration progress_timeout =
      absl::ZeroDuration();                           // work without progress for so long is a hang; zero: no watchdog
  absl::Duration start_deadline = absl::Seconds(60);  // from the start command to the announcement
};

}  // namespace manta::controller

// PlacementQueue: requests that wait for room, and who is next: by priority, then by the age of the job, then by the
// age of the request.
//
// The first that has to wait keeps the nodes that it would get once what younger jobs hold is gone: nobody behind it
// may take those, so it is not starved; beside them others go ahead. Nobody is preempted. Two jobs cannot come to wait
// for each other, as long as each asks for all its groups before the next is placed: the older job's requests are all
// before the younger's.
//
// A value without locks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "controller/scheduler/place.h"

namespace manta::controller::scheduler {

struct Waiting {
  uint64_t id = 0;
  v1::PlacementRequest request;
  uint64_t job_arrival = 0;
  uint64_t arrival = 0;
};

class PlacementQueue {
 public:
  void Add(Waiting waiting);
  bool Remove(uint64_t id);
  bool empty() const { return order_.empty(); }
  size_t size() const { return order_.size(); }

  struct Outcome {
    std::vector<std::pair<Waiting, Placement>> placed;          // taken from the view, gone from the queue
    std::vector<std::pair<uint64_t, absl::Status>> impossible;  // stay in the queue
    std::vector<std::pair<uint64_t, absl::Status>> waiting;     // with what each waits for
  };
  // One pass. `holds_before(w)`: the view with what would be left once everything that is behind `w` in order is gone.
  Outcome Pass(ClusterView& view, const std::function<ClusterView(const Waiting&)>& holds_before);

  // Before another in order?
  static std::tuple<int, uint64_t, uint64_t> Key(const Waiting& waiting) {
    return {-waiting.request.priority(), waiting.job_arrival, waiting.arrival};
  }

 private:
  std::map<std::tuple<int, uint64_t, uint64_t, uint64_t>, Waiting> order_;
};

}  // namespace manta::controller::scheduler

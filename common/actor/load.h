// Load: what a worker's beat says of work that no lane and no method of its has counted. A value.
#pragma once

#include <cstdint>

namespace manta::actor {

struct Load {
  uint64_t running = 0;  // pieces of work that are there now
  uint64_t done = 0;     // so far, in any unit: that it grows is what counts
};

}  // namespace manta::actor

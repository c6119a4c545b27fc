// Whether, and after what wait, a run goes on one of whose workers has died (cluster.max_worker_restarts). A plain
// value.
//
// Deaths are counted since the run last came further than it was at any restart before: since a checkpoint was made,
// or, where the trainer lives on, a step done. So a run that advances survives any number of them, and one that dies
// again and again at the same place ends after `most`.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/random.h"

namespace manta::controller {

class WorkerRestarts {
 public:
  // `seed`: of the waits' jitter.
  WorkerRestarts(int most, uint64_t seed) : most_(most), jitter_(seed) {}

  // A worker has died, and the run would go on after `step`. Whether it may; counted then.
  bool Take(int64_t step) {
    if (step > furthest_) {
      furthest_ = step;
      count_ = 0;
    }
    if (count_ >= most_) return false;
    ++count_;
    return true;
  }
  int count() const { return count_; }  // since the run came further, the one just taken included
  int most() const { return most_; }
  int64_t furthest() const { return furthest_; }

  // To wait before the restart just taken: 1 s, then twice as long each time up to a minute; a quarter more or less.
  absl::Duration Backoff() {
    const absl::Duration wait = std::min(kLongest, kFirst * (int64_t{1} << std::clamp(count_ - 1, 0, 10)));
    return wait * (0.75 + 0.5 * jitter_.NextUniform());
  }

 private:
  static constexpr absl::Duration kFirst = absl::Seconds(1), kLongest = absl::Minutes(1);
  const int most_;
  RandomStream jitter_;
  int count_ = 0;
  int64_t furthest_ = -1;
};

}  // namespace manta::controller

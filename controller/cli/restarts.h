// How often a process that keeps dying is started again: so many times within a minute, and each time after a longer wait.
// A plain value; the caller's clock.
#pragma once

#include <algorithm>
#include <deque>

#include "absl/time/time.h"

namespace manta::cli {

class Restarts {
 public:
  explicit Restarts(int most) : most_(most) {}

  // Whether it may be started again now; counted then.
  bool Take(absl::Time now) {
    while (!taken_.empty() && now - taken_.front() > kWithin) taken_.pop_front();
    if (static_cast<int>(taken_.size()) >= most_) return false;
    taken_.push_back(now);
    return true;
  }
  // Those of the last minute, the one that Take has just counted included.
  int count() const { return static_cast<int>(taken_.size()); }
  int most() const { return most_; }
  // To wait before it: nothing the first time, for an end that nobody expects twice.
  absl::Duration Backoff() const {
    if (taken_.size() < 2) return absl::ZeroDuration();
    return std::min(kLongest, absl::Milliseconds(100) * (1 << std::min<size_t>(taken_.size() - 2, 5)));
  }

 private:
  static constexpr absl::Duration kWithin = absl::Minutes(1), kLongest = absl::Seconds(2);
  int most_;
  std::deque<absl::Time> taken_;
};

}  // namespace manta::cli

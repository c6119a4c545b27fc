// PortLeases: which ports of this node actors have been given, so that no two get the same. A port that was given back
// rests for a minute: connections of its last owner may still linger. Whether somebody else on the machine uses a port
// is asked of `is_free` at the time. Pure but for that; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace manta::node {

class PortLeases {
 public:
  using Owner = std::pair<std::string, uint64_t>;  // actor and epoch
  PortLeases(int first, int last, std::function<bool(int)> is_free)
      : first_(first), last_(last), next_(first), is_free_(std::move(is_free)) {}

  // `count` ports, all or none: RESOURCE_EXHAUSTED where there are not as many.
  [[nodiscard]] absl::StatusOr<std::vector<int>> Lease(const Owner& owner, int count, absl::Time now);
  void Release(const Owner& owner, absl::Time now);
  // Of an actor that an earlier agent has started.
  void Restore(const Owner& owner, int port) { owners_.emplace(port, owner); }

 private:
  const int first_, last_;
  int next_;
  const std::function<bool(int)> is_free_;
  std::map<int, Owner> owners_;
  std::deque<std::pair<absl::Time, int>> resting_;  // until when
};

}  // namespace manta::node

#include "controller/node/port_leases.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace manta::node {
namespace {

constexpr absl::Duration kRest = absl::Seconds(60);
constexpr int kMaxCount = 1024;

}  // namespace

absl::StatusOr<std::vector<int>> PortLeases::Lease(const Owner& owner, int count, absl::Time now) {
  if (count < 1 || count > kMaxCount) {
    return absl::InvalidArgumentError(absl::StrCat(count, " ports were asked for; 1 to ", kMaxCount, " may be"));
  }
  while (!resting_.empty() && resting_.front().first <= now) resting_.pop_front();
  std::set<int> resting;
  for (const auto& [until, port] : resting_) resting.insert(port);
  std::vector<int> ports;
  for (int tried = 0; tried <= last_ - first_ && static_cast<int>(ports.size()) < count; ++tried) {
    const int port = next_;
    next_ = next_ == last_ ? first_ : next_ + 1;
    if (owners_.count(port) > 0 || resting.count(port) > 0 || !is_free_(port)) continue;
    ports.push_back(port);
  }
  if (static_cast<int>(ports.size()) < count) {
    return absl::ResourceExhaustedError(absl::StrCat("of the ports ", first_, " to ", last_, " only ", ports.size(),
                                                     " are free (", owners_.size(), " leased, ", resting_.size(),
                                                     " resting); ", count, " were asked for"));
  }
  for (const int port : ports) owners_.emplace(port, owner);
  return ports;
}

void PortLeases::Release(const Owner& owner, absl::Time now) {
  for (auto lease = owners_.begin(); lease != owners_.end();) {
    if (lease->second == owner) {
      resting_.emplace_back(now + kRest, lease->first);
      lease = owners_.erase(lease);
    } else {
      ++lease;
    }
  }
}

}  // namespace manta::node

#include "controller/scheduler/distribute.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <tuple>

namespace manta::controller::scheduler {
namespace {

struct Domain {
  int begin = 0, end = 0;  // of the rooms
  int64_t room = 0;
};

std::vector<Domain> DomainsOf(const std::vector<RoomOnNode>& rooms) {
  std::vector<Domain> domains;
  for (int i = 0; i < static_cast<int>(rooms.size()); ++i) {
    if (i == 0 || rooms[i].domain != rooms[i - 1].domain) domains.push_back({i, i, 0});
    domains.back().end = i + 1;
    domains.back().room += rooms[i].room;
  }
  return domains;
}

// As few bins as possible: the largest whole, as long as no single one can hold what is left; then the smallest that
// can. take[i] out of room[i]; the rooms' sum suffices.
std::vector<int64_t> FewestBins(const std::vector<int64_t>& room, int64_t amount) {
  std::vector<int64_t> take(room.size(), 0);
  std::vector<int> order(room.size());
  for (size_t i = 0; i < room.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return room[a] > room[b]; });
  for (size_t k = 0; amount > 0; ++k) {
    if (room[order[k]] >= amount) {
      // The last of equal rooms at least `amount`, then the first in order among those equal ones.
      size_t last = k;
      while (last + 1 < order.size() && room[order[last + 1]] >= amount) ++last;
      while (last > k && room[order[last - 1]] == room[order[last]]) --last;
      take[order[last]] = amount;
      break;
    }
    take[order[k]] = room[order[k]];
    amount -= room[order[k]];
  }
  return take;
}

// Evenly over the nodes [begin, end): rounds in which each node with room gets one; the last, partial round prefers
// domains that have the fewest.
void SpreadOver(const std::vector<RoomOnNode>& rooms, int begin, int end, int64_t amount, std::vector<int64_t>* take) {
  std::vector<int> open;
  for (int i = begin; i < end; ++i) {
    if (rooms[i].room > 0) open.push_back(i);
  }
  while (amount >= static_cast<int64_t>(open.size()) && !open.empty()) {
    for (int i : open) ++(*take)[i];
    amount -= static_cast<int64_t>(open.size());
    std::erase_if(open, [&](int i) { return (*take)[i] >= rooms[i].room; });
  }
  if (amount == 0) return;
  // (ranks in the domain, domain, position in `open` of its next node)
  std::vector<int64_t> in_domain(rooms[end - 1].domain + 1, 0);
  for (int i = begin; i < end; ++i) in_domain[rooms[i].domain] += (*take)[i];
  std::priority_queue<std::tuple<int64_t, int, size_t>, std::vector<std::tuple<int64_t, int, size_t>>, std::greater<>>
      next;
  for (size_t k = 0; k < open.size(); ++k) {
    const int domain = rooms[open[k]].domain;
    if (k == 0 || rooms[open[k - 1]].domain != domain) next.emplace(in_domain[domain], domain, k);
  }
  for (; amount > 0; --amount) {
    const auto [count, domain, k] = next.top();
    next.pop();
    ++(*take)[open[k]];
    if (k + 1 < open.size() && rooms[open[k + 1]].domain == domain) next.emplace(count + 1, domain, k + 1);
  }
}

void PackInto(const std::vector<RoomOnNode>& rooms, const Domain& domain, int64_t amount, std::vector<int64_t>* take) {
  std::vector<int64_t> room;
  for (int i = domain.begin; i < domain.end; ++i) room.push_back(rooms[i].room);
  const std::vector<int64_t> taken = FewestBins(room, amount);
  for (size_t i = 0; i < taken.size(); ++i) (*take)[domain.begin + i] += taken[i];
}

std::vector<Share> InOrder(const std::vector<int64_t>& take, int begin, int end) {
  std::vector<Share> shares;
  for (int i = begin; i < end; ++i) {
    if (take[i] > 0) shares.push_back({i, static_cast<int>(take[i])});
  }
  return shares;
}

// Segments of `segment` ranks over domains; see the header.
std::optional<std::vector<Share>> DistributeSegments(const std::vector<RoomOnNode>& rooms,
                                                     const std::vector<Domain>& domains, int num_ranks, int segment,
                                                     bool spread) {
  const int64_t full = num_ranks / segment, rest = num_ranks % segment;
  std::vector<int64_t> segments;  // that each domain has room for
  int64_t sum = 0;
  for (const Domain& domain : domains) {
    segments.push_back(domain.room / segment);
    sum += segments.back();
  }
  if (sum < full) return std::nullopt;
  std::vector<int64_t> taken(domains.size(), 0);
  if (spread) {
    std::vector<RoomOnNode> units;
    for (size_t d = 0; d < domains.size(); ++d) {
      units.push_back({static_cast<int>(d), static_cast<int>(std::min<int64_t>(segments[d], full))});
    }
    if (full > 0) SpreadOver(units, 0, static_cast<int>(units.size()), full, &taken);
  } else {
    taken = FewestBins(segments, full);
  }
  // The shorter last one: beside full ones if it can, where the least is left over.
  int last = -1;
  if (rest > 0) {
    for (size_t d = 0; d < domains.size(); ++d) {
      const int64_t left = domains[d].room - taken[d] * segment;
      if (left < rest) continue;
      const auto worse = [&](int other) {
        const int64_t other_left = domains[other].room - taken[other] * segment;
        const bool used = taken[d] > 0 && !spread, other_used = taken[other] > 0 && !spread;
        return used != other_used ? used : left < other_left;
      };
      if (last < 0 || worse(last)) last = static_cast<int>(d);
    }
    if (last < 0) return std::nullopt;
  }
  std::vector<int64_t> take(rooms.size(), 0);
  std::vector<Share> shares, tail;
  for (size_t d = 0; d < domains.size(); ++d) {
    const bool is_last = static_cast<int>(d) == last;
    const int64_t ranks = taken[d] * segment + (is_last ? rest : 0);
    if (ranks == 0) continue;
    if (spread) {
      SpreadOver(rooms, domains[d].begin, domains[d].end, ranks, &take);
    } else {
      PackInto(rooms, domains[d], ranks, &take);
    }
    const auto here = InOrder(take, domains[d].begin, domains[d].end);
    std::vector<Share>& to = is_last ? tail : shares;
    to.insert(to.end(), here.begin(), here.end());
  }
  shares.insert(shares.end(), tail.begin(), tail.end());
  return shares;
}

}  // namespace

std::optional<std::vector<Share>> Distribute(std::vector<RoomOnNode> rooms, int num_ranks, v1::Strategy strategy,
                                             int segment) {
  const bool spread = strategy == v1::STRATEGY_SPREAD;
  int64_t sum = 0;
  int fullest = -1;  // the one node that suffices with the least room
  for (int i = 0; i < static_cast<int>(rooms.size()); ++i) {
    if (rooms[i].room >= num_ranks && (fullest < 0 || rooms[i].room < rooms[fullest].room)) fullest = i;
    if (strategy == v1::STRATEGY_STRICT_SPREAD) rooms[i].room = std::min(rooms[i].room, 1);
    sum += rooms[i].room;
  }
  if (strategy == v1::STRATEGY_STRICT_PACK || (fullest >= 0 && !spread && strategy != v1::STRATEGY_STRICT_SPREAD)) {
    if (fullest < 0) return std::nullopt;
    return std::vector<Share>{{fullest, num_ranks}};
  }
  if (sum < num_ranks || rooms.empty()) return std::nullopt;
  const std::vector<Domain> domains = DomainsOf(rooms);
  std::vector<int64_t> take(rooms.size(), 0);
  if (!spread) {
    const Domain* least = nullptr;
    for (const Domain& domain : domains) {
      if (domain.room >= num_ranks && (least == nullptr || domain.room < least->room)) least = &domain;
    }
    if (least != nullptr) {
      PackInto(rooms, *least, num_ranks, &take);
      return InOrder(take, least->begin, least->end);
    }
  }
  if (segment > 1) return DistributeSegments(rooms, domains, num_ranks, segment, spread);
  if (spread) {
    SpreadOver(rooms, 0, static_cast<int>(rooms.size()), num_ranks, &take);
  } else {
    std::vector<int64_t> room;
    for (const Domain& domain : domains) room.push_back(domain.room);
    const std::vector<int64_t> taken = FewestBins(room, num_ranks);
    for (size_t d = 0; d < domains.size(); ++d) {
      if (taken[d] > 0) PackInto(rooms, domains[d], taken[d], &take);
    }
  }
  return InOrder(take, 0, static_cast<int>(rooms.size()));
}

}  // namespace manta::controller::scheduler

#include "controller/algorithms/packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/shuffle.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

absl::Status Validate(std::span<const int64_t> lengths, int64_t capacity, int64_t smallest) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > capacity || lengths[i] < smallest) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", i, " has ", lengths[i],
                                                     " tokens; packing needs between ", smallest, " and ", capacity));
    }
  }
  return absl::OkStatus();
}

struct OpenBin {
  std::vector<int32_t> items;
  int64_t room;
  void Add(int32_t item, int64_t length) {
    items.push_back(item);
    room -= length;
  }
};

Bins Take(std::vector<OpenBin>& open) {
  Bins bins;
  for (OpenBin& bin : open) bins.push_back(std::move(bin.items));
  return bins;
}

}  // namespace

absl::StatusOr<PackingAlgorithm> ParsePackingAlgorithm(std::string_view name) {
  if (name == "concatenative") return PackingAlgorithm::kConcatenative;
  if (name == "first_fit_decreasing") return PackingAlgorithm::kFirstFitDecreasing;
  if (name == "modified_first_fit_decreasing") return PackingAlgorithm::kModifiedFirstFitDecreasing;
  if (name == "first_fit_shuffle") return PackingAlgorithm::kFirstFitShuffle;
  return absl::InvalidArgumentError(
      absl::StrCat("packing algorithm '", std::string(name),
                   "' is not known; known are concatenative, first_fit_decreasing, modified_first_fit_decreasing and "
                   "first_fit_shuffle"));
}

absl::StatusOr<Bins> Pack(PackingAlgorithm algorithm, std::span<const int64_t> lengths, int64_t capacity, uint64_t seed) {
  switch (algorithm) {
    case PackingAlgorithm::kConcatenative: return PackConcatenative(lengths, capacity);
    case PackingAlgorithm::kFirstFitDecreasing: return PackFirstFitDecreasing(lengths, capacity);
    case PackingAlgorithm::kModifiedFirstFitDecreasing: return PackModifiedFirstFitDecreasing(lengths, capacity);
    case PackingAlgorithm::kFirstFitShuffle: return PackFirstFitShuffle(lengths, capacity, seed);
  }
  return absl::InternalError("no such packing algorithm");
}

absl::StatusOr<Bins> PackConcatenative(std::span<const int64_t> lengths, int64_t capacity) {
  MANTA_RETURN_IF_ERROR(Validate(lengths, capacity, 0));
  std::vector<OpenBin> open;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (open.empty() || lengths[i] > open.back().room) open.push_back({{}, capacity});
    open.back().Add(static_cast<int32_t>(i), lengths[i]);
  }
  return Take(open);
}

absl::StatusOr<Bins> PackFirstFit(std::span<const int64_t> lengths, int64_t capacity,
                                  std::span<const int32_t> order) {
  MANTA_RETURN_IF_ERROR(Validate(lengths, capacity, 0));
  std::vector<OpenBin> open;
  for (int32_t item : order) {
    auto bin = std::find_if(open.begin(), open.end(), [&](const OpenBin& b) { return lengths[item] <= b.room; });
    if (bin == open.end()) bin = open.insert(open.end(), {{}, capacity});
    bin->Add(item, lengths[item]);
  }
  return Take(open);
}

absl::StatusOr<Bins> PackFirstFitDecreasing(std::span<const int64_t> lengths, int64_t capacity) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a > b;
  });
  return PackFirstFit(lengths, capacity, order);
}

absl::StatusOr<Bins> PackFirstFitShuffle(std::span<const int64_t> lengths, int64_t capacity, uint64_t seed) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  RandomStream random(seed);
  Shuffle(order, random);
  return PackFirstFit(lengths, capacity, order);
}

absl::StatusOr<Bins> PackModifiedFirstFitDecreasing(std::span<const int64_t> lengths, int64_t capacity) {
  MANTA_RETURN_IF_ERROR(Validate(lengths, capacity, 1));
  const auto longer = [&](int32_t a, int32_t b) { return lengths[a] > lengths[b]; };
  const auto shorter = [&](int32_t a, int32_t b) { return lengths[a] < lengths[b]; };
  std::vector<int32_t> large, medium, small, tiny;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    auto& size_class = 2 * length > capacity ? large : 3 * length > capacity ? medium : 6 * length > capacity ? small : tiny;
    size_class.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(large.begin(), large.end(), longer);
  std::stable_sort(medium.begin(), medium.end(), longer);
  std::stable_sort(small.begin(), small.end(), shorter);
  std::stable_sort(tiny.begin(), tiny.end(), shorter);

  std::vector<OpenBin> open;
  for (int32_t item : large) {
    open.push_back({{}, capacity});
    open.back().Add(item, lengths[item]);
  }
  // Forwards: the longest medium one that fits.
  std::vector<bool> has_medium(open.size(), false);
  for (size_t b = 0; b < open.size(); ++b) {
    const auto it = std::find_if(medium.begin(), medium.end(), [&](int32_t m) { return lengths[m] <= open[b].room; });
    if (it == medium.end()) continue;
    open[b].Add(*it, lengths[*it]);
    medium.erase(it);
    has_medium[b] = true;
  }
  // Backwards: the shortest small one and the longest that fits beside it.
  for (size_t b = open.size(); b-- > 0;) {
    if (has_medium[b] || small.size() < 2) continue;
    if (lengths[small[0]] + lengths[small[1]] > open[b].room) continue;
    open[b].Add(small[0], lengths[small[0]]);
    small.erase(small.begin());
    const auto it = std::find_if(small.rbegin(), small.rend(), [&](int32_t s) { return lengths[s] <= open[b].room; });
    if (it == small.rend()) continue;
    open[b].Add(*it, lengths[*it]);
    small.erase(std::next(it).base());
  }
  // Forwards: whatever fits, the longest first.
  std::vector<int32_t> rest = medium;
  rest.insert(rest.end(), small.begin(), small.end());
  rest.insert(rest.end(), tiny.begin(), tiny.end());
  std::stable_sort(rest.begin(), rest.end(), longer);
  for (OpenBin& bin : open) {
    for (auto it = rest.begin(); it != rest.end();) {
      if (lengths[*it] > bin.room) {
        ++it;
        continue;
      }
      bin.Add(*it, lengths[*it]);
      it = rest.erase(it);
    }
  }
  // What is left over: the emptiest of further bins, or a new one.
  const size_t first_further = open.size();
  for (int32_t item : rest) {
    const auto emptiest =
        std::max_element(open.begin() + static_cast<std::ptrdiff_t>(first_further), open.end(),
                         [](const OpenBin& a, const OpenBin& b) { return a.room < b.room; });
    if (emptiest != open.end() && lengths[item] <= emptiest->room) {
      emptiest->Add(item, lengths[item]);
    } else {
      open.push_back({{}, capacity});
      open.back().Add(item, lengths[item]);
    }
  }
  std::stable_sort(open.begin() + static_cast<std::ptrdiff_t>(first_further), open.end(),
                   [](const OpenBin& a, const OpenBin& b) { return a.room > b.room; });
  return Take(open);
}

absl::Status SpreadBins(Bins& bins, int64_t min_bin_count, int64_t bin_count_multiple) {
  int64_t wanted = std::max<int64_t>(static_cast<int64_t>(bins.size()), min_bin_count);
  if (bin_count_multiple > 1) wanted = (wanted + bin_count_multiple - 1) / bin_count_multiple * bin_count_multiple;
  int64_t sequences = 0;
  for (const auto& bin : bins) sequences += static_cast<int64_t>(bin.size());
  if (wanted == static_cast<int64_t>(bins.size())) return absl::OkStatus();
  if (sequences < wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(sequences, " sequences cannot fill the ", wanted, " microbatches that are wanted"));
  }
  std::vector<size_t> by_count(bins.size());
  std::iota(by_count.begin(), by_count.end(), size_t{0});
  std::sort(by_count.begin(), by_count.end(), [&](size_t a, size_t b) {
    return bins[a].size() != bins[b].size() ? bins[a].size() > bins[b].size() : a > b;
  });
  for (size_t donor : by_count) {
    while (static_cast<int64_t>(bins.size()) < wanted && bins[donor].size() > 1) {
      const int32_t item = bins[donor].back();
      bins[donor].pop_back();
      bins.push_back({item});
    }
  }
  return absl::OkStatus();
}

PackingMetrics MeasurePacking(std::span<const int64_t> lengths, int64_t capacity, const Bins& bins) {
  PackingMetrics m;
  m.num_sequences = static_cast<int64_t>(lengths.size());
  m.num_bins = static_cast<int64_t>(bins.size());
  std::vector<double> loads;
  for (const auto& bin : bins) {
    int64_t load = 0;
    for (int32_t item : bin) load += lengths[item];
    m.total_sequence_length += load;
    loads.push_back(static_cast<double>(load));
  }
  m.total_bin_capacity = m.num_bins * capacity;
  m.total_waste = m.total_bin_capacity - m.total_sequence_length;
  if (m.total_bin_capacity == 0) return m;
  m.average_utilization = static_cast<double>(m.total_sequence_length) / static_cast<double>(m.total_bin_capacity);
  m.waste_ratio = 1 - m.average_utilization;
  m.theoretical_min_bins = (m.total_sequence_length + capacity - 1) / capacity;
  m.bin_efficiency = static_cast<double>(m.theoretical_min_bins) / static_cast<double>(m.num_bins);
  if (loads.size() > 1) {
    const double mean = static_cast<double>(m.total_sequence_length) / static_cast<double>(m.num_bins);
    double squares = 0;
    for (double load : loads) squares += (load - mean) * (load - mean);
    if (mean > 0) m.bin_balance = 1 - std::sqrt(squares / static_cast<double>(loads.size() - 1)) / mean;
  }
  return m;
}

}  // namespace manta::controller

#include "common/model/sequence_batches.h"

#include <algorithm>
#include <bit>
#include <map>

namespace manta::model {
namespace {

// Lengths with the same class are within a quarter of each other: four classes an octave.
int64_t LengthClass(int64_t length) {
  const int octave = std::bit_width(static_cast<uint64_t>(length)) - 1;
  const int64_t step = octave >= 2 ? int64_t{1} << (octave - 2) : 1;
  return (length + step - 1) / step * step;
}

}  // namespace

SequenceBatches BatchSequences(const PackedLayout& layout, int64_t max_scores, at::Device device) {
  const auto length_of = [&](size_t s) { return static_cast<int64_t>(layout.prefix(s).size()) + layout.own(s); };
  std::map<int64_t, std::vector<size_t>> classes;
  for (size_t s = 0; s < layout.num_sequences(); ++s) {
    if (layout.own(s) > 0) classes[LengthClass(length_of(s))].push_back(s);
  }
  const auto to_device = [&](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong).to(device); };
  SequenceBatches result;
  std::vector<int64_t> places(static_cast<size_t>(layout.num_rows()));
  int64_t place = 0;
  for (const auto& [most, members] : classes) {
    const int64_t at_once = std::max<int64_t>(1, max_scores / (most * most));
    for (size_t first = 0; first < members.size(); first += static_cast<size_t>(at_once)) {
      const size_t end = std::min(members.size(), first + static_cast<size_t>(at_once));
      SequenceBatch batch;
      batch.sequences = static_cast<int64_t>(end - first);
      for (size_t m = first; m < end; ++m) batch.length = std::max(batch.length, length_of(members[m]));
      std::vector<int64_t> tokens;
      tokens.reserve(static_cast<size_t>(batch.sequences * batch.length));
      for (size_t m = first; m < end; ++m) {
        const std::span<const int64_t> prefix = layout.prefix(members[m]);
        const int64_t begin = layout.cu_seqlens[members[m]], own = layout.own(members[m]);
        tokens.insert(tokens.end(), prefix.begin(), prefix.end());
        place += static_cast<int64_t>(prefix.size());
        for (int64_t i = 0; i < own; ++i, ++place) {
          tokens.push_back(begin + i);
          places[static_cast<size_t>(begin + i)] = place;
        }
        const int64_t padding = batch.length - length_of(members[m]);
        tokens.insert(tokens.end(), static_cast<size_t>(padding), begin);
        place += padding;
      }
      batch.tokens = to_device(tokens);
      result.batches.push_back(std::move(batch));
    }
  }
  result.places = to_device(places);
  return result;
}

}  // namespace manta::model

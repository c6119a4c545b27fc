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

SequenceBatches BatchSequences(const std::vector<int64_t>& cu_seqlens, int64_t max_scores, at::Device device) {
  std::map<int64_t, std::vector<size_t>> classes;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t length = cu_seqlens[s + 1] - cu_seqlens[s];
    if (length > 0) classes[LengthClass(length)].push_back(s);
  }
  const auto to_device = [&](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong).to(device); };
  SequenceBatches result;
  std::vector<int64_t> places(cu_seqlens.empty() ? 0 : static_cast<size_t>(cu_seqlens.back()));
  int64_t row = 0;
  for (const auto& [most, members] : classes) {
    const int64_t at_once = std::max<int64_t>(1, max_scores / (most * most));
    for (size_t first = 0; first < members.size(); first += static_cast<size_t>(at_once)) {
      const size_t end = std::min(members.size(), first + static_cast<size_t>(at_once));
      SequenceBatch batch;
      batch.sequences = static_cast<int64_t>(end - first);
      for (size_t m = first; m < end; ++m) {
        batch.length = std::max(batch.length, cu_seqlens[members[m] + 1] - cu_seqlens[members[m]]);
      }
      std::vector<int64_t> tokens;
      tokens.reserve(static_cast<size_t>(batch.sequences * batch.length));
      for (size_t m = first; m < end; ++m) {
        const int64_t begin = cu_seqlens[members[m]], length = cu_seqlens[members[m] + 1] - begin;
        for (int64_t i = 0; i < batch.length; ++i, ++row) {
          tokens.push_back(i < length ? begin + i : begin);
          if (i < length) places[static_cast<size_t>(begin + i)] = row;
        }
      }
      batch.tokens = to_device(tokens);
      result.batches.push_back(std::move(batch));
    }
  }
  result.places = to_device(places);
  return result;
}

}  // namespace manta::model

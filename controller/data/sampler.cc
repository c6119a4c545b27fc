#include "controller/data/sampler.h"

#include <numeric>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/shuffle.h"

namespace manta::controller {

RowSampler::RowSampler(int64_t num_rows, uint64_t seed, bool shuffle, RowPosition position)
    : num_rows_(num_rows), seed_(seed), shuffle_(shuffle), position_(position) {
  Shuffle();
}

void RowSampler::Shuffle() {
  order_.resize(num_rows_);
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (!shuffle_) return;
  RandomStream random(seed_, static_cast<uint64_t>(position_.epoch));
  manta::Shuffle(order_, random);
}

std::vector<int64_t> RowSampler::Next(int64_t count) {
  MANTA_CHECK(count > 0 && count <= num_rows_);
  if (const int64_t epoch = EpochOfNext(count); epoch != position_.epoch) {
    position_ = {epoch, 0};
    Shuffle();
  }
  const auto begin = order_.begin() + position_.row;
  position_.row += count;
  return {begin, begin + count};
}

}  // namespace manta::controller

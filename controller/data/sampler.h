// The order in which rows of a training set are drawn: a function of (seed, epoch, position), so that a run that is resumed
// draws what it would have drawn. Not thread-safe; its whole state is its position.
#pragma once

#include <cstdint>
#include <vector>

namespace manta::controller {

struct RowPosition {
  int64_t epoch = 0;
  int64_t row = 0;  // rows of this epoch that are drawn
};

class RowSampler {
 public:
  // Without `shuffle` rows come in the file's order.
  RowSampler(int64_t num_rows, uint64_t seed, bool shuffle, RowPosition position = {});

  // The next `count` rows, all of one epoch: what is left of an epoch and is fewer than `count` is dropped, as the field's
  // data loaders do. 0 < count <= num_rows.
  std::vector<int64_t> Next(int64_t count);

  // The epoch that Next(count) would draw from.
  int64_t EpochOfNext(int64_t count) const { return position_.epoch + (position_.row + count > num_rows_ ? 1 : 0); }

  RowPosition position() const { return position_; }

 private:
  void Shuffle();

  const int64_t num_rows_;
  const uint64_t seed_;
  const bool shuffle_;
  RowPosition position_;
  std::vector<int64_t> order_;  // of position_.epoch
};

}  // namespace manta::controller

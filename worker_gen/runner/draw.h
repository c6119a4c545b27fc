// A token to draw in a step: from which row of logits, and for whom. Several may draw from one row.
#pragma once

#include <cstdint>

namespace manta::gen {

struct Draw {
  int64_t row = 0;    // of the logits; draws of a step are in the order of their rows, and no row is without one
  int32_t chunk = 0;  // of the step: its options, and its place among what is drawn
};

}  // namespace manta::gen

// Shuffle: a permutation that is a function of the stream alone, the same on every machine and with every library.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/random.h"

namespace manta {

// Fisher and Yates's shuffle, from the back: one draw an element but the first.
template <typename T>
void Shuffle(std::vector<T>& values, RandomStream& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.NextBelow(i)]);
}

}  // namespace manta

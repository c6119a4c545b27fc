// The element-wise sum or maximum of several arrays, taken in the order given: the arithmetic of every CPU collective.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "common/comm/collective.h"

namespace manta::comm {

// out[i] = sources[0][i] op sources[1][i] op ..., from the left, for i in [0, count). `out` may be one of the sources.
// BF16 is summed in float32 and rounded once (to nearest, ties to even). At least one source.
void ReduceInOrder(absl::Span<const void* const> sources, size_t count, DataType type, ReduceOp op, void* out);

}  // namespace manta::comm

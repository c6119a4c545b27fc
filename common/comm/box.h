// Box: a part of an array, one range a dimension; and the copying of a box between two arrays that hold parts of the
// same parameter. Values; everything is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace manta::comm {

struct Box {
  std::vector<int64_t> lower, upper;  // [lower, upper) of each dimension; a scalar has none

  static Box Whole(const std::vector<int64_t>& shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }
  int64_t Elements() const;  // 0 where any range is empty
  bool Contains(const Box& other) const;
  bool operator==(const Box&) const = default;
  std::string ToString() const;  // "[0:4, 2:8]"
};

// Both of the same parameter.
Box Intersect(const Box& a, const Box& b);

// `box` without `hole` (which lies within it), as disjoint boxes.
std::vector<Box> Subtract(const Box& box, const Box& hole);

// Where the elements of `part` lie in the row-major array of `whole`: calls visit(offset in `whole`, offset in `part`,
// elements) for each contiguous run, in row-major order of `part`. `part` lies within `whole`.
void ForEachRun(const Box& whole, const Box& part, absl::FunctionRef<void(int64_t, int64_t, int64_t)> visit);

// Copies the elements of `part` from the array of `source` to that of `destination`, both row-major, with as few calls
// of `copy(to, from, bytes)` as the layouts allow. `part` lies within both.
void CopyBox(const Box& source, const void* from, const Box& destination, void* to, const Box& part,
             size_t element_bytes, absl::FunctionRef<void(void*, const void*, size_t)> copy);

}  // namespace manta::comm

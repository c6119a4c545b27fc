#include "common/comm/box.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace manta::comm {
namespace {

int64_t Extent(const Box& box, size_t dim) {
  return box.upper[dim] - box.lower[dim];
}

// Row-major strides, in elements.
std::vector<int64_t> Strides(const Box& box) {
  std::vector<int64_t> strides(box.lower.size(), 1);
  for (size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * Extent(box, d);
  return strides;
}

// The first dimension from which on `part` spans all of `whole`: from there a run is contiguous, one dimension earlier
// it is so as well, since only its outermost range is cut.
size_t RunDim(const Box& whole, const Box& part) {
  size_t d = part.lower.size();
  while (d > 0 && part.lower[d - 1] == whole.lower[d - 1] && part.upper[d - 1] == whole.upper[d - 1]) --d;
  return d > 0 ? d - 1 : 0;
}

// Calls visit(offset in a, offset in b) for the start of each run of `part` over dimensions [run_dim, end).
void ForEachStart(const Box& a, const Box& b, const Box& part, size_t run_dim,
                  absl::FunctionRef<void(int64_t, int64_t)> visit) {
  const std::vector<int64_t> strides_a = Strides(a), strides_b = Strides(b);
  std::vector<int64_t> index = part.lower;
  for (;;) {
    int64_t at_a = 0, at_b = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      at_a += (index[d] - a.lower[d]) * strides_a[d];
      at_b += (index[d] - b.lower[d]) * strides_b[d];
    }
    visit(at_a, at_b);
    size_t d = run_dim;
    while (d > 0 && ++index[d - 1] == part.upper[d - 1]) {
      index[d - 1] = part.lower[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

int64_t RunElements(const Box& part, size_t run_dim) {
  int64_t elements = 1;
  for (size_t d = run_dim; d < part.lower.size(); ++d) elements *= Extent(part, d);
  return elements;
}

}  // namespace

int64_t Box::Elements() const {
  int64_t elements = 1;
  for (size_t d = 0; d < lower.size(); ++d) elements *= std::max<int64_t>(0, upper[d] - lower[d]);
  return elements;
}

bool Box::Contains(const Box& other) const {
  if (other.lower.size() != lower.size()) return false;
  for (size_t d = 0; d < lower.size(); ++d) {
    if (other.lower[d] < lower[d] || other.upper[d] > upper[d]) return false;
  }
  return true;
}

std::string Box::ToString() const {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < lower.size(); ++d) ranges.push_back(absl::StrCat(lower[d], ":", upper[d]));
  return absl::StrCat("[", absl::StrJoin(ranges, ", "), "]");
}

Box Intersect(const Box& a, const Box& b) {
  MANTA_CHECK(a.lower.size() == b.lower.size());
  Box box = a;
  for (size_t d = 0; d < a.lower.size(); ++d) {
    box.lower[d] = std::max(a.lower[d], b.lower[d]);
    box.upper[d] = std::max(box.lower[d], std::min(a.upper[d], b.upper[d]));
  }
  return box;
}

std::vector<Box> Subtract(const Box& box, const Box& hole) {
  std::vector<Box> rest;
  Box middle = box;  // shrinks to the hole, a dimension at a time; what it loses is the rest
  for (size_t d = 0; d < box.lower.size(); ++d) {
    Box before = middle, after = middle;
    before.upper[d] = hole.lower[d];
    after.lower[d] = hole.upper[d];
    if (before.Elements() > 0) rest.push_back(before);
    if (after.Elements() > 0) rest.push_back(after);
    middle.lower[d] = hole.lower[d];
    middle.upper[d] = hole.upper[d];
  }
  return rest;
}

void ForEachRun(const Box& whole, const Box& part, absl::FunctionRef<void(int64_t, int64_t, int64_t)> visit) {
  if (part.Elements() == 0) return;
  const size_t run_dim = RunDim(whole, part);
  const int64_t elements = RunElements(part, run_dim);
  ForEachStart(whole, part, part, run_dim, [&](int64_t at, int64_t in_part) { visit(at, in_part, elements); });
}

void CopyBox(const Box& source, const void* from, const Box& destination, void* to, const Box& part,
             size_t element_bytes, absl::FunctionRef<void(void*, const void*, size_t)> copy) {
  MANTA_CHECK(source.Contains(part) && destination.Contains(part)) << part.ToString();
  if (part.Elements() == 0) return;
  const size_t run_dim = std::max(RunDim(source, part), RunDim(destination, part));
  const size_t bytes = static_cast<size_t>(RunElements(part, run_dim)) * element_bytes;
  ForEachStart(source, destination, part, run_dim, [&](int64_t at_source, int64_t at_destination) {
    copy(static_cast<char*>(to) + at_destination * element_bytes,
         static_cast<const char*>(from) + at_source * element_bytes, bytes);
  });
}

}  // namespace manta::comm

// The plan of a weight transfer: which part of which parameter goes from which source rank to which destination rank.
//
// A pure function of two sharding tables, so every process computes the same plan by itself. A table is a list of
// slices a rank; a slice is a contiguous range of one dimension of one parameter, which the rank holds (or wants)
// row-major.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/comm/box.h"
#include "manta/v1/weights.pb.h"

namespace manta::comm {

struct SliceSpec {
  std::string name;  // Hugging Face name of the parameter
  v1::DType dtype = v1::DTYPE_F32;
  std::vector<int64_t> shape;  // of the whole parameter
  int shard_dim = -1;          // -1: whole
  int64_t begin = 0, end = 0;  // [begin, end) of shard_dim; ignored for a whole parameter

  Box box() const;
  uint64_t bytes() const;
};

// A slice of rank `rank` of `size` that splits `shard_dim` evenly (its length need not be a multiple of size).
SliceSpec EvenSlice(std::string name, v1::DType dtype, std::vector<int64_t> shape, int shard_dim, int rank, int size);

size_t SizeOf(v1::DType dtype);

// INVALID_ARGUMENT for shapes, ranges or types that make no sense; names the parameter.
[[nodiscard]] absl::Status CheckSlice(const SliceSpec& slice);

// One box of a parameter, from one slice to another.
struct Transfer {
  int source_rank = 0;
  int source_slice = 0;  // index into the source rank's table
  int destination_rank = 0;
  int destination_slice = 0;
  Box box;  // of the whole parameter; lies within both slices
};

using ShardTable = std::vector<SliceSpec>;  // of one rank

// Every element of every destination slice comes exactly once, from a rank that holds it; where several do, from the
// one with the fewest bytes to send so far. An empty source table is a rank that is gone. Transfers are in order of
// destination rank and slice. NOT_FOUND names a parameter (part) that nobody holds; INVALID_ARGUMENT one whose type or
// shape differs between the two sides.
[[nodiscard]] absl::StatusOr<std::vector<Transfer>> PlanTransfers(absl::Span<const ShardTable> sources,
                                                                  absl::Span<const ShardTable> destinations);

}  // namespace manta::comm

// Manifests: the slices that a holder has, as its readers are told. Pure functions.
#pragma once

#include "common/comm/weight_store.h"

namespace manta::comm {

// Adds an entry a slice, without offsets. INVALID_ARGUMENT for one that makes no sense, or twice the same name.
[[nodiscard]] absl::Status DescribeSlices(absl::Span<const LocalSlice> slices, v1::WeightManifest* manifest);

// The slices of a manifest that came over the wire, looked at before they are trusted: every one lies within
// [0, memory_bytes).
[[nodiscard]] absl::StatusOr<std::vector<SliceSpec>> ReadManifest(const v1::WeightManifest& manifest,
                                                                  uint64_t memory_bytes);

}  // namespace manta::comm

#include "common/comm/weight_manifest.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::comm {

absl::Status DescribeSlices(absl::Span<const LocalSlice> slices, v1::WeightManifest* manifest) {
  absl::flat_hash_set<std::string> names;
  for (const LocalSlice& slice : slices) {
    MANTA_RETURN_IF_ERROR(CheckSlice(slice.spec));
    if (!names.insert(slice.spec.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", slice.spec.name, "' is published twice"));
    }
    v1::ParameterSlice& entry = *manifest->add_slices();
    entry.set_name(slice.spec.name);
    entry.set_dtype(slice.spec.dtype);
    for (const int64_t extent : slice.spec.shape) entry.add_shape(extent);
    entry.set_shard_dim(slice.spec.shard_dim);
    entry.set_begin(slice.spec.begin);
    entry.set_end(slice.spec.end);
    entry.set_bytes(slice.spec.bytes());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SliceSpec>> ReadManifest(const v1::WeightManifest& manifest, uint64_t memory_bytes) {
  std::vector<SliceSpec> slices;
  for (const v1::ParameterSlice& entry : manifest.slices()) {
    SliceSpec slice{entry.name(),      entry.dtype(), {entry.shape().begin(), entry.shape().end()},
                    entry.shard_dim(), entry.begin(), entry.end()};
    MANTA_RETURN_IF_ERROR(CheckSlice(slice));
    const uint64_t bytes = slice.bytes();
    if (bytes != entry.bytes() || entry.offset() > memory_bytes || bytes > memory_bytes - entry.offset()) {
      return absl::InternalError(absl::StrCat("its manifest's entry of '", entry.name(), "' contradicts itself"));
    }
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace manta::comm

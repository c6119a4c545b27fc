// Writing safetensors so that a crash leaves the old file or the new one, never a part: temporary name, fsync, rename.
//
// WriteCheckpoint makes what AutoModel.from_pretrained opens: model.safetensors, or shards of at most `max_shard_bytes`
// with their index. The folder itself is the caller's to make atomic (a step directory is written as tmp_step_N and
// renamed). The sources' bytes are read during the call only. Thread-safe for different paths; errors name path and
// tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/checkpoint/safetensors.h"

namespace manta::checkpoint {

struct TensorSource {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string_view bytes;  // row-major, little-endian
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

// One file, tensors in the order given. `metadata` defaults to {"format": "pt"}, which transformers wants.
[[nodiscard]] absl::Status WriteSafetensors(const std::filesystem::path& path, absl::Span<const TensorSource> tensors,
                                            const Metadata& metadata = {{"format", "pt"}});

// Into an existing folder. Files of an earlier checkpoint there that do not belong to the new one are removed last.
[[nodiscard]] absl::Status WriteCheckpoint(const std::filesystem::path& folder, absl::Span<const TensorSource> tensors,
                                           uint64_t max_shard_bytes = uint64_t{5'000'000'000});

}  // namespace manta::checkpoint

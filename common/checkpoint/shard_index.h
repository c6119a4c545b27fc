// model.safetensors.index.json: which file of a sharded checkpoint holds which tensor. Thread-safe; errors are
// INVALID_ARGUMENT and name file, key and what was expected.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace manta::checkpoint {

struct ShardIndex {
  uint64_t total_size = 0;                        // bytes of all tensors; 0 where the file does not say
  std::map<std::string, std::string> weight_map;  // tensor -> file name, in the index's folder
};

[[nodiscard]] absl::StatusOr<ShardIndex> ParseShardIndex(std::string_view text, std::string_view file);
std::string ShardIndexText(const ShardIndex& index);

}  // namespace manta::checkpoint

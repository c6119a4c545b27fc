// What generation needs from generation_config.json: which tokens end a sequence. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace manta::model {

// eos_token_id of folder/generation_config.json, a number or a list; where that file or field is not there,
// `from_config` (config.json's). INVALID_ARGUMENT for broken JSON or a field of another kind.
absl::StatusOr<std::vector<int32_t>> ReadEosIds(const std::filesystem::path& folder,
                                                absl::Span<const int64_t> from_config);

}  // namespace manta::model

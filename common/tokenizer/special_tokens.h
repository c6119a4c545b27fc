// The special tokens that a model's folder names, as text: what chat templates and generation ask for.
//
// Read from tokenizer_config.json; what that file does not say is looked up in special_tokens_map.json. Neither file
// has to be there. Values, thread-safe to read. Broken files give one error that names file and field.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace manta::tokenizer {

struct SpecialTokens {
  // Absent where the files say null or nothing.
  std::optional<std::string> bos, eos, pad, unk, sep, cls, mask;
  // additional_special_tokens (extra_special_tokens where that is a list), in the order of the file.
  std::vector<std::string> additional;
  // add_bos_token and add_eos_token where tokenizer_config.json has them. Encode follows tokenizer.json's
  // post-processor; these are for those who build prompts themselves.
  std::optional<bool> add_bos, add_eos;

  // {"bos_token", "<s>"}, ... for those that are set, in the order above: the variables that chat templates see.
  std::vector<std::pair<std::string, std::string>> Named() const;
};

// INVALID_ARGUMENT for broken JSON or a field of the wrong kind.
[[nodiscard]] absl::StatusOr<SpecialTokens> LoadSpecialTokens(const std::filesystem::path& dir);

}  // namespace manta::tokenizer

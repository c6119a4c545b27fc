// A loaded configuration: files merged, overrides applied, defaults filled in, interpolations resolved.
//
// LoadTree reads a file and what its `defaults:` names (a path or a list of them, relative to the file; later ones lay
// over earlier ones, and the file over all: maps merge, lists are replaced). Every value knows its file and line.
// A relative path of something to read that is not there from the working directory is looked for beside the file that
// says it. Immutable after loading; safe to read from any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/node.h"
#include "common/config/run_config.h"

namespace manta::config {

class Tree {
 public:
  Tree(Node root, Algorithm algorithm, std::string file)
      : root_(std::move(root)), algorithm_(algorithm), file_(std::move(file)) {}

  const Node& root() const { return root_; }
  Algorithm algorithm() const { return algorithm_; }
  const std::string& file() const { return file_; }

  // The value at "a.b.c"; null where it is absent or null in the YAML.
  const Node* Find(std::string_view path) const;
  // Where the value is written, or, where it is not, where the nearest tree above it is: "file:line".
  std::string Where(std::string_view path) const;
  // Whether a file or an override says it, rather than a default.
  bool IsWritten(std::string_view path) const;
  // "file:line: path: message" as INVALID_ARGUMENT.
  absl::Status Error(std::string_view path, std::string_view message) const;

  // The value as a type. INVALID_ARGUMENT where it is absent, null, or something else.
  absl::StatusOr<bool> GetBool(std::string_view path) const;
  absl::StatusOr<int64_t> GetInt(std::string_view path) const;
  absl::StatusOr<double> GetNumber(std::string_view path) const;
  absl::StatusOr<std::string> GetText(std::string_view path) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(std::string_view path) const;
  absl::StatusOr<std::vector<double>> GetNumbers(std::string_view path) const;
  absl::StatusOr<std::vector<std::string>> GetTexts(std::string_view path) const;
  // As GetText, and one of `allowed`; the error lists them.
  absl::StatusOr<std::string> GetEnum(std::string_view path, std::span<const std::string_view> allowed) const;

  // The same with absent and null as an empty optional.
  absl::StatusOr<std::optional<int64_t>> GetOptionalInt(std::string_view path) const;
  absl::StatusOr<std::optional<double>> GetOptionalNumber(std::string_view path) const;
  absl::StatusOr<std::optional<std::string>> GetOptionalText(std::string_view path) const;

  // The whole as YAML, to write beside a run's results.
  std::string ToYaml() const;

 private:
  Node root_;
  Algorithm algorithm_;
  std::string file_;
};

// One file with its defaults merged, and nothing else done.
[[nodiscard]] absl::StatusOr<Node> ReadMerged(const std::filesystem::path& path);

// INVALID_ARGUMENT or NOT_FOUND with file:line.
[[nodiscard]] absl::StatusOr<Tree> LoadTree(const std::filesystem::path& path,
                                            std::span<const std::string> overrides = {});

// The same of YAML text without `defaults:`; for tests and fuzzing.
[[nodiscard]] absl::StatusOr<Tree> TreeFromText(std::string_view text, std::span<const std::string> overrides = {});

}  // namespace manta::config

// The table of keys as Markdown: what docs/configuration.md lists below its opening, which people write.
//
// `config_docs docs/configuration.md` brings the file up to date; config_test fails where it is not. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace manta::config {

// What a key does, in one line, without a full stop; empty where its name says it. A key of a dataset is looked up as
// one of data.train, and one of `generation` as one of policy.generation.
std::string KeyMeaning(const std::string& path);

// One section with a table for each tree.
std::string KeyTables();

// The line in the document that the tables follow.
extern const char kKeyTablesMarker[];

// `document` with everything below the marker replaced. INVALID_ARGUMENT where it has no marker.
[[nodiscard]] absl::StatusOr<std::string> WithKeyTables(std::string_view document);

}  // namespace manta::config

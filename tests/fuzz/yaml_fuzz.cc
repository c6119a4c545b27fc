// Configurations: parsing, writing what was parsed, and the whole way to a typed run configuration.
#include <cstdlib>

#include "common/config/interpolate.h"
#include "common/config/override.h"
#include "common/config/tree.h"
#include "common/config/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<manta::config::Node> node = manta::config::ParseYaml(text, "fuzz");
  if (!node.ok()) return 0;
  // What is written reads back as the same.
  absl::StatusOr<manta::config::Node> again = manta::config::ParseYaml(manta::config::ToYaml(*node), "again");
  if (!again.ok() || manta::config::ToJson(*node) != manta::config::ToJson(*again)) std::abort();
  (void)manta::config::Interpolate(*node);
  (void)manta::config::ApplyOverride(text.substr(0, 100), *node);
  absl::StatusOr<manta::config::Tree> tree = manta::config::TreeFromText(text);
  if (tree.ok()) (void)manta::config::ParseRunConfig(*tree);
  return 0;
}

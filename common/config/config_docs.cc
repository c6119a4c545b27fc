// config_docs FILE: rewrites the tables of keys in docs/configuration.md; without FILE prints them.
#include <cstdio>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/config/key_docs.h"

namespace manta::config {
namespace {

absl::Status Rewrite(const char* file) {
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, uint64_t{1} << 20));
  MANTA_ASSIGN_OR_RETURN(const std::string fresh, WithKeyTables(text));
  return WriteFileAtomically(file, fresh);
}

}  // namespace
}  // namespace manta::config

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(stderr, "usage: config_docs [docs/configuration.md]\n");
    return 64;
  }
  if (argc == 1) {
    std::printf("%s", manta::config::KeyTables().c_str());
    return 0;
  }
  const absl::Status status = manta::config::Rewrite(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "config_docs: error: %s\n", std::string(status.message()).c_str());
  return manta::ExitCode(status);
}

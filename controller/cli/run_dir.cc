#include "controller/cli/run_dir.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "controller/cli/version.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

int LastNumber(const fs::path& log_dir) {
  int last = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(log_dir, error)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    if (absl::StartsWith(name, "exp_") && absl::SimpleAtoi(name.substr(4), &number)) last = std::max(last, number);
  }
  return last;
}

std::string SamplingText(const config::RunConfig& run) {
  if (run.algorithm == config::Algorithm::kSft || run.algorithm == config::Algorithm::kActors) return "";
  const config::GenerationConfig& g = run.policy.generation;
  return absl::StrFormat("# sampling: temperature %g, top_p %g, top_k %d, min_p %g, max_new_tokens %d\n", g.temperature, g.top_p,
                         g.top_k, g.min_p, g.max_new_tokens);
}

}  // namespace

absl::StatusOr<fs::path> MakeRunDir(const fs::path& log_dir) {
  std::error_code error;
  fs::create_directories(log_dir, error);
  if (error) return ErrnoError("create the folder", log_dir, error.value());
  for (int number = LastNumber(log_dir) + 1;; ++number) {
    const std::string name = absl::StrFormat("exp_%03d", number);
    const fs::path dir = log_dir / name;
    if (!fs::create_directory(dir, error)) {
      if (error) return ErrnoError("create the folder", dir, error.value());
      continue;  // another run took it
    }
    fs::create_directory(dir / "logs", error);
    if (error) return ErrnoError("create the folder", dir / "logs", error.value());
    // A new link renamed over the old one: there is always one.
    const fs::path link = log_dir / absl::StrCat(".latest.", getpid());
    fs::remove(link, error);
    fs::create_directory_symlink(name, link, error);
    if (!error) fs::rename(link, log_dir / "latest", error);
    if (error) fs::remove(link, error);  // no link (a file system without them): the run goes on
    return dir;
  }
}

absl::StatusOr<fs::path> WriteResolvedConfig(const fs::path& run_dir, const config::Tree& tree, const config::RunConfig& run,
                                             const std::string& command_line) {
  const std::string header = absl::StrCat(
      "# manta ", kVersion, ", protocol v1, LibTorch ", kTorchVersion, "\n# ", command_line, "\n# written ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::Now(), absl::UTCTimeZone()), " from ", tree.file(), "\n# seed ", run.seed(),
      "\n", SamplingText(run));
  const fs::path path = run_dir / "config.resolved.yaml";
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(path, header + tree.ToYaml()));
  return path;
}

absl::Status WriteControllerAddress(const fs::path& run_dir, const std::string& address) {
  return WriteFileAtomically(run_dir / "controller.address", address + "\n");
}

}  // namespace manta::cli

// What the trees `env` ask of verifiers, answered by `manta-reward --check`.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "controller/cli/check.h"
#include "controller/cli/child.h"
#include "controller/node/process.h"

namespace manta::cli {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);

// What the process printed where it exited with 64; empty where it exited with 0.
absl::StatusOr<std::string> Complaint(const std::vector<std::string>& args) {
  const int output = memfd_create("manta-reward", MFD_CLOEXEC);
  if (output < 0) return ErrnoError("create", "a file in memory", errno);
  absl::Cleanup close_output = [output] { close(output); };
  MANTA_ASSIGN_OR_RETURN(Process process, Process::Spawn({.executable = (BinDir() / "manta-reward").string(),
                                                          .args = args,
                                                          .stdout_fd = output,
                                                          .stderr_fd = output}));
  const std::optional<ExitStatus> exit = process.WaitFor(kDeadline);
  if (!exit) {
    process.Signal(SIGKILL);
    process.WaitFor(absl::Seconds(5));
    return absl::DeadlineExceededError("manta-reward --check: no answer");
  }
  if (exit->code == 0) return std::string();
  std::string text(4096, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(output, text.data(), text.size(), 0))));
  if (exit->code != 64) {
    return absl::InternalError(absl::StrCat("manta-reward --check ", exit->ToString(), ": ", text));
  }
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

absl::Status CheckEnvironments(const config::Tree& tree, const config::RunConfig& run) {
  std::set<std::string> used{run.data.train.env_name};
  if (run.data.validation) used.insert(run.data.validation->env_name);
  for (const std::string& name : used) {
    const auto env = run.env.find(name);
    if (env == run.env.end()) continue;
    MANTA_ASSIGN_OR_RETURN(const std::string complaint,
                           Complaint({"--check", env->second.verifier, env->second.options_json}));
    if (complaint.empty()) continue;
    // "KEY: what is wrong", where KEY is one of the environment's.
    const std::pair<std::string, std::string> parts = absl::StrSplit(complaint, absl::MaxSplits(": ", 1));
    const std::string tree_path = absl::StrCat("env.", name), key = absl::StrCat(tree_path, ".", parts.first);
    return tree.Error(tree.Find(key) != nullptr ? key : tree_path, parts.second);
  }
  return absl::OkStatus();
}

}  // namespace manta::cli

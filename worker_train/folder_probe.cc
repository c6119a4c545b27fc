#include "worker_train/folder_probe.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::train {
namespace {

std::string NotTheSame(const v1::FolderProbe& probe, absl::string_view why) {
  return absl::StrCat("checkpointing.checkpoint_dir: ", std::filesystem::path(probe.path()).parent_path().string(),
                      " is not the controller's folder of that name here (", std::string(why),
                      "); ranks on several machines need one on a file system that all of them share");
}

}  // namespace

absl::Status AnswerFolderProbe(const v1::FolderProbe& probe, int rank, absl::Duration patience) {
  for (const absl::Time until = absl::Now() + patience;;) {
    const absl::StatusOr<std::string> said = ReadFile(probe.path(), 1024);
    if (said.ok() && *said == probe.content()) break;
    if (absl::Now() >= until) {
      return UserError(NotTheSame(probe, said.ok() ? "the file that it has written differs" : "the file that it has written is not there"));
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
  const absl::Status written = WriteFileAtomically(absl::StrCat(probe.path(), ".", rank), probe.content());
  if (!written.ok()) return UserError(NotTheSame(probe, absl::StrCat("it cannot be written to: ", std::string(written.message()))));
  return absl::OkStatus();
}

}  // namespace manta::train

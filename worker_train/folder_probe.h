// What a trainer's rank does with a v1::FolderProbe: see controller/algorithms/folder_probe.h, its other side. Blocks for
// some seconds where the file is not there, since network file systems may show it late. Thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manta/v1/trainer.pb.h"

namespace manta::train {

// INVALID_ARGUMENT, naming the folder, where it is not the one that the controller sees, or nothing can be written there.
[[nodiscard]] absl::Status AnswerFolderProbe(const v1::FolderProbe& probe, int rank, absl::Duration patience = absl::Seconds(5));

}  // namespace manta::train

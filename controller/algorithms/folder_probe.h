// FolderProbe: whether a trainer's ranks on other machines see the same checkpoint folder as the controller. Ranks and the
// controller each write a part of a checkpoint: on folders that merely have the same name every checkpoint would be a ruin,
// found when it is needed.
//
// The controller puts a file with a random content into the folder, each rank reads it and puts one beside it
// (v1::FolderProbe, worker_train/folder_probe.h), and the controller reads those. All of them are removed with this object.
// Belongs to the loop.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "manta/v1/trainer.pb.h"

namespace manta::controller {

class FolderProbe {
 public:
  // Makes the folder where it does not exist. `names[r]` is how messages call rank r.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<FolderProbe>> In(const std::filesystem::path& folder,
                                                                       std::vector<std::string> names);
  ~FolderProbe();
  FolderProbe(const FolderProbe&) = delete;
  FolderProbe& operator=(const FolderProbe&) = delete;

  // For every rank.
  const v1::FolderProbe& request() const { return request_; }
  // Once every rank has answered: whether what they have written is here.
  Task<absl::Status> Check(EventLoop* loop);

 private:
  FolderProbe() = default;
  std::filesystem::path folder_;
  v1::FolderProbe request_;
  std::vector<std::string> names_;
};

}  // namespace manta::controller

// The workers of a run: which groups it needs, started at once, configured, and wrapped for the loops.
//
// Owned by run.cc for the length of the run; belongs to the controller's loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/task.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "controller/algorithms/continuation.h"
#include "controller/algorithms/trainer_group.h"
#include "controller/cluster/run_context.h"
#include "controller/rollout/generator_pool.h"

namespace manta::controller {

class Workers {
 public:
  // Starts and configures what the algorithm needs. `resume_from` is a checkpoint's policy folder, or empty.
  [[nodiscard]] static Task<absl::StatusOr<std::unique_ptr<Workers>>> Start(RunContext context, const config::Tree& tree,
                                                                            const config::RunConfig& config,
                                                                            std::string resume_from);

  // Takes over what an earlier controller has left at work, as it is. An error says why it cannot go on; then all of it is
  // still there, and is the caller's to end.
  [[nodiscard]] static Task<absl::StatusOr<std::unique_ptr<Workers>>> Adopt(RunContext context, const config::Tree& tree,
                                                                            const config::RunConfig& config);
  // The groups that a run of this configuration has.
  static std::vector<std::string> Roles(const config::RunConfig& config);
  // Of adopted trainers: the step that they have taken last, if any since they were configured.
  std::optional<TrainedStep>& trained() { return trained_; }

  TrainerGroup* trainers() { return trainers_.get(); }      // null for an evaluation
  GeneratorPool* generators() { return generators_.get(); }  // null for SFT
  std::vector<std::shared_ptr<grpc::Channel>> reward_channels() const;
  // Cancelled with the reason when a worker dies or the run is stopped.
  CancelToken token() const { return any_.token(); }
  uint64_t num_parameters() const { return num_parameters_; }
  bool cuda() const { return cuda_; }

 private:
  Workers() = default;
  Task<absl::Status> TakeOver(RunContext context);
  Task<absl::Status> StartGroups(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                                 bool adopting);
  Task<absl::Status> Configure(RunContext context, const config::RunConfig& config, std::string resume_from);
  void CancelWith(CancelToken token);

  std::vector<std::shared_ptr<Group>> groups_;
  std::shared_ptr<Group> train_, generate_, reward_;
  std::unique_ptr<TrainerGroup> trainers_;
  std::unique_ptr<GeneratorPool> generators_;
  CancelSource any_;
  std::vector<CancelToken::Registration> registrations_;
  std::optional<TrainedStep> trained_;
  uint64_t num_parameters_ = 0;
  bool cuda_ = false;
};

}  // namespace manta::controller

// The workers of a run: which groups it needs, started at once, configured, and wrapped for the loops.
//
// Owned by run.cc for the length of the run; belongs to the controller's loop.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/task.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "controller/algorithms/continuation.h"
#include "controller/algorithms/trainer_group.h"
#include "controller/algorithms/trainer_placement.h"
#include "controller/cluster/run_context.h"
#include "controller/rollout/generator_pool.h"

namespace manta::controller {

// What a run's first start has found: what is started again is the same, whatever nodes are left by then.
struct WorkerShape {
  bool cuda = false;
  TrainerPlacement trainer;
};

class Workers {
 public:
  // Starts and configures what the algorithm needs. `resume_from` is a checkpoint's policy folder, or empty. `shape` is
  // filled in where it is not known, and waited for where it is: nodes that are lost may come back.
  [[nodiscard]] static Task<absl::StatusOr<std::unique_ptr<Workers>>> Start(RunContext context,
                                                                            const config::Tree& tree,
                                                                            const config::RunConfig& config,
                                                                            std::string resume_from,
                                                                            std::optional<WorkerShape>* shape);

  // Takes over what an earlier controller has left at work, as it is. An error says why it cannot go on; then all of it
  // is still there, and is the caller's to end.
  [[nodiscard]] static Task<absl::StatusOr<std::unique_ptr<Workers>>> Adopt(RunContext context,
                                                                            const config::Tree& tree,
                                                                            const config::RunConfig& config,
                                                                            std::optional<WorkerShape>* shape);
  // The same of this controller's own trainer, and what else is whole; the other groups, which have been ended, are
  // started anew.
  [[nodiscard]] static Task<absl::StatusOr<std::unique_ptr<Workers>>> Rejoin(RunContext context,
                                                                             const config::Tree& tree,
                                                                             const config::RunConfig& config,
                                                                             std::optional<WorkerShape>* shape);
  // The groups that a run of this configuration has.
  static std::vector<std::string> Roles(const config::RunConfig& config);
  // Those of which a member has died.
  std::vector<std::string> DeadRoles() const;
  bool trains() const { return train_ != nullptr; }
  // Of adopted and rejoined trainers: the step that they have taken last, if any since they were configured.
  std::optional<TrainedStep>& trained() { return trained_; }

  TrainerGroup* trainers() { return trainers_.get(); }       // null for an evaluation
  GeneratorPool* generators() { return generators_.get(); }  // null for SFT
  std::vector<std::shared_ptr<grpc::Channel>> reward_channels() const;
  // Cancelled with the reason when a worker dies or the run is stopped. What trainers are called with is not, by the
  // death of another worker: what they have begun they end, and what became of it is known.
  CancelToken token() const { return any_.token(); }
  uint64_t num_parameters() const { return num_parameters_; }
  bool cuda() const { return cuda_; }

 private:
  Workers() = default;
  Task<absl::Status> TakeOver(RunContext context, const config::RunConfig& config, bool rejoins);
  Task<absl::Status> StartGroups(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                                 bool adopting, std::optional<WorkerShape>* shape);
  Task<absl::Status> Configure(RunContext context, const config::RunConfig& config, std::string resume_from);
  void CancelWith(CancelSource* source, CancelToken token);

  std::vector<std::shared_ptr<Group>> groups_;
  std::set<std::string> found_;  // roles of those that this controller had before
  std::shared_ptr<Group> train_, generate_, reward_;
  std::unique_ptr<TrainerGroup> trainers_;
  std::unique_ptr<GeneratorPool> generators_;
  CancelSource any_, trainers_end_;
  std::vector<CancelToken::Registration> registrations_;
  std::optional<TrainedStep> trained_;
  uint64_t num_parameters_ = 0;
  bool cuda_ = false;
};

}  // namespace manta::controller

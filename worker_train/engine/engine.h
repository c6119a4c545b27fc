// Engine: what one data-parallel rank of a trainer computes.
//
// Every rank holds the whole model and its share of the batch. A training step runs forward, loss and backward over the
// rank's microbatches, sums gradients over ranks, clips them by their global norm, updates this rank's shard of the
// optimiser's state and gathers the parameters. Losses are divided by counts over the whole global batch, so neither
// the number of ranks nor of microbatches changes anything but rounding; on the CPU a rerun gives the same bits.
//
// Calls are collective: every rank of the group makes them in the same order, also with an empty share. One thread at a
// time; aborting the collective, from any thread, makes calls in progress fail with CANCELLED. After a collective has
// failed the group is unusable (the group is the restart unit). A step whose gradients are not finite fails with
// OUT_OF_RANGE on every rank and changes nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/collective.h"
#include "common/comm/weight_store.h"
#include "common/model/parameters.h"
#include "manta/v1/trainer.pb.h"
#include "worker_train/engine/batch_view.h"
#include "worker_train/engine/scored_rows.h"
#include "worker_train/engine/sharded_adamw.h"
#include "worker_train/engine/train_checkpoint.h"
#include "worker_train/loss/clipped_pg.h"
#include "worker_train/optimizer/lr_schedule.h"

namespace manta::train {

class Engine {
 public:
  // What the request asks for, on `collective` (null for one rank). Ranks on GPUs have a second one for what lies
  // there.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Engine>> Create(
      const v1::ConfigureTrainerRequest& request, std::shared_ptr<comm::Collective> collective,
      std::shared_ptr<comm::Collective> device_collective = nullptr);

  void Describe(v1::ConfigureTrainerReply* reply) const;
  // Called after each microbatch and each part of a checkpoint: a call that computes is told from one that hangs.
  void OnWork(std::function<void()> callback) { on_work_ = std::move(callback); }

  [[nodiscard]] absl::Status Train(const v1::TrainRequest& request, v1::TrainReply* reply);
  [[nodiscard]] absl::Status Evaluate(const v1::TrainRequest& request, v1::TrainReply* reply);
  [[nodiscard]] absl::Status ComputeLogprobs(const v1::LogprobRequest& request, v1::LogprobReply* reply);
  // On a GPU the weights are published where they lie; `num_readers` as in WeightStore::PublishInPlace.
  [[nodiscard]] absl::Status Publish(uint64_t version, int num_readers, comm::WeightStore& store,
                                     v1::PublishWeightsReply* reply);
  [[nodiscard]] absl::Status Save(const v1::SaveCheckpointRequest& request, v1::SaveCheckpointReply* reply);

  const model::Parameters& parameters() const { return parameters_; }
  int64_t step() const { return state_.step; }

 private:
  // A request's loss, read once.
  struct Loss {
    std::optional<ClippedPgOptions> clipped_pg;  // empty: NLL
    ScoreOptions score;
    double global_valid_toks = 0, global_valid_seqs = 0, global_correct_toks = 0;
  };

  Engine() = default;
  absl::Status LoadModel();
  absl::Status RestoreState();
  absl::StatusOr<Loss> ParseLoss(const v1::TrainRequest& request, const std::vector<BatchView>& microbatches);
  absl::Status CheckBatch(const Loss& loss, const BatchView& batch) const;
  // Loss (and backward, while c10::GradMode is on) of one microbatch.
  absl::Status RunMicrobatch(const Loss& loss, const BatchView& batch, MetricSet& metrics);
  absl::Status RunMicrobatches(const Loss& loss, const std::vector<BatchView>& microbatches, MetricSet& metrics);
  // Combines the metrics of all ranks, and sums `extra` over them.
  absl::Status ReduceMetrics(MetricSet& metrics, double& extra);
  void Report(const Loss& loss, const MetricSet& metrics, v1::TrainReply* reply) const;
  const std::shared_ptr<comm::DeviceTransport>& Transport();

  v1::ConfigureTrainerRequest config_;
  std::function<void()> on_work_ = [] {};
  std::shared_ptr<comm::Collective> collective_;         // null: one rank
  std::shared_ptr<comm::Collective> device_collective_;  // for parameters and gradients; the same on the CPU
  model::Parameters parameters_;
  std::optional<model::Parameters> reference_;
  std::unique_ptr<ShardedAdamW> optimizer_;
  LrSchedule schedule_;
  TrainerState state_;
  comm::WeightStore* lender_ = nullptr;  // of the weights that were published in place; told before they change
  // Of this rank's GPU; null where there is none, or it cannot be had.
  std::optional<std::shared_ptr<comm::DeviceTransport>> transport_;
};

}  // namespace manta::train

// AdamW over a model's flat buffer, its state cut evenly over data-parallel ranks (ZeRO, arXiv 1910.02054, stage 1):
// each rank reduces, updates and keeps one contiguous shard of masters and moments, and the updated parameters are
// gathered.
//
// The flat space of n elements is `world` shards of equal size and a tail of fewer than 16 * world elements that every
// rank keeps. Masters and moments are float32; where the parameters are float32 they are their own masters. Not
// thread-safe. Step is collective: all ranks make it. After an error from a collective the group is unusable.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/comm/collective.h"
#include "common/model/parameters.h"
#include "worker_train/optimizer/adamw.h"

namespace manta::train {

class ShardedAdamW {
 public:
  // Masters are taken from the parameters, moments are 0. `collective` may be null: one rank. Both must outlive this.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<ShardedAdamW>> Create(model::Parameters* parameters,
                                                                            comm::Collective* collective);

  // Sums the flat gradients over ranks; afterwards this rank's shard and the tail are right.
  [[nodiscard]] absl::Status ReduceGradients();

  // This rank's part of the squared norm of the summed gradients; the parts add up to the whole.
  double LocalSquaredNorm() const;

  // Updates shard and tail, writes the parameters and gathers them from all ranks. `step` counts from 1.
  [[nodiscard]] absl::Status Step(const AdamWOptions& options, int64_t step, double gradient_scale);

  // State by kind: "master", "exp_avg" or "exp_avg_sq".
  static constexpr const char* kKinds[] = {"master", "exp_avg", "exp_avg_sq"};

  // The whole of one kind in the flat layout, [FlatSize] float32 on the CPU, on every rank. Collective.
  [[nodiscard]] absl::StatusOr<at::Tensor> Gather(const std::string& kind) const;

  // Takes over this rank's part of one kind from the whole in the flat layout, on the CPU.
  void Restore(const std::string& kind, const at::Tensor& flat);

 private:
  ShardedAdamW(model::Parameters* parameters, comm::Collective* collective);
  const at::Tensor& State(const std::string& kind) const;
  // One contiguous range: [begin, begin + count) of the flat space lies at `state_begin` of the state's buffers.
  absl::Status StepRange(const AdamWOptions& options, int64_t step, double gradient_scale, int64_t begin, int64_t count,
                         int64_t state_begin);

  model::Parameters* const parameters_;
  comm::Collective* const collective_;
  const int rank_, world_;
  const int64_t total_, shard_, tail_;        // elements
  const bool own_masters_;                    // false: the float32 parameters are the masters
  at::Tensor master_, exp_avg_, exp_avg_sq_;  // [shard_ + tail_] float32
};

}  // namespace manta::train

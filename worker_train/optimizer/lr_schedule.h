// The learning rate as a function of the number of steps taken: LinearLR, ConstantLR and CosineAnnealingLR, alone or in
// sequence with milestones, in closed form (the recurrences that PyTorch applies step by step give the same values to
// rounding). A value, safe to read from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "manta/v1/trainer.pb.h"

namespace manta::train {

class LrSchedule {
 public:
  // Without entries the rate is constant. INVALID_ARGUMENT names the entry and the argument that is wrong. A name may
  // carry its Python module ("torch.optim.lr_scheduler.LinearLR").
  [[nodiscard]] static absl::StatusOr<LrSchedule> Create(double base_lr, const v1::LrSchedule& config);

  // The rate of step `step`, counted from 0: one step is one RL or SFT step, however many updates it makes.
  double At(int64_t step) const;

 private:
  enum class Kind { kLinear, kConstant, kCosine };
  struct Entry {
    Kind kind;
    int64_t start;  // the first step that it rules
    double a, b, c;
  };
  static absl::StatusOr<Entry> ParseEntry(const v1::LrScheduleEntry& config);

  double base_lr_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace manta::train

// What the training loops have in common: steps with a progress line, a line of metrics, validation and checkpoints.
//
// A loop is a subclass that knows how to take one step. The state between steps is TrainingInfo and the trainers' own,
// so that a run that goes on from a checkpoint gives what an uninterrupted one gives. Belongs to the controller's loop
// thread; an error of a step ends the run and names the step.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/task.h"
#include "controller/algorithms/loop_context.h"
#include "controller/algorithms/loop_control.h"

namespace manta::controller {

class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;
  Task<absl::StatusOr<RunOutcome>> Run();

 protected:
  struct Schedule {
    int64_t num_steps = 0;      // the run's last step
    int64_t val_period = 0;     // 0: never
    int64_t val_start_at = -1;  // the first step at which val_period counts
    bool val_at_start = false, val_at_end = false;
    StopRule stop_at;  // looked at after each validation
  };
  TrainingLoop(LoopContext context, Schedule schedule, uint64_t data_seed);

  // Before the first step, of a resumed run too.
  virtual Task<absl::Status> Prepare() = 0;
  // One step: trains, fills metrics() and moves info() on, but for its step. False, with nothing trained, where the
  // data has come to its end before num_steps.
  virtual Task<absl::StatusOr<bool>> TrainStep() = 0;
  // Adds validation/... to metrics().
  virtual Task<absl::Status> Validate() = 0;

  // What the trainers keep with an optimiser step, one of the `parts` that the step of the run has: enough to go on behind
  // it. `after`: info() as it will be, but for its step. The step's other metrics must be there.
  std::string Note(const TrainingInfo& after, int part, int parts, int64_t samples);
  // Of that optimiser step.
  std::string TrainKey(int part) const { return absl::StrCat(context_.job, "/train/", next_step(), ".", part); }
  void AddTrainReply(const v1::TrainReply& reply);

  // What follows is timed as timing/train/<phase> and shown as "step N: phase".
  void BeginPhase(const char* phase, const std::string& detail = "");

  LoopContext& context() { return context_; }
  const config::RunConfig& config() const { return context_.config; }
  TrainingInfo& info() { return info_; }
  std::map<std::string, double>& metrics() { return metrics_; }  // of the step, as logged: with prefixes
  int64_t next_step() const { return info_.step + 1; }
  void set_step_samples(int64_t samples) { step_samples_ = samples; }
  void set_summary(std::string summary) { outcome_.summary = std::move(summary); }

 private:
  Task<absl::StatusOr<bool>> Step();
  // Of a run that goes on with workers that are there: what an earlier controller has left undone of its last step.
  Task<absl::Status> Continue();
  Task<absl::Status> ValidateAndSave(bool last);
  Task<absl::Status> FinishEarly();
  Task<absl::Status> Save();
  absl::Status Log(double seconds);

  LoopContext context_;
  Schedule schedule_;
  TrainingInfo info_;
  StepTimer timer_;
  PhaseTimes phases_;
  std::map<std::string, double> metrics_;
  int64_t step_samples_ = 0;
  int64_t validated_ = -1, saved_ = -1;  // the last step that was
  std::string enough_;                   // why the run ends before num_steps: schedule_.stop_at
  RunOutcome outcome_;
};

}  // namespace manta::controller

// How a controller that was started again goes on with the trainer that an earlier one has left at work.
//
// The ranks are the truth: each keeps the note of the last optimiser step that it took (v1::StepNote), so that where the
// run stands and what the weights are cannot disagree. Before anything is asked of them they must be at rest. A call that
// reached some ranks alone, the earlier controller having been killed between two sends, may wait in a collective for the
// rest for ever: such a trainer cannot go on, and neither can one between two optimiser steps of one step of the run,
// whose batch is gone. The run then begins with new workers at the newest checkpoint.
//
// Everything belongs to the controller's loop.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/algorithms/checkpointer.h"
#include "controller/algorithms/trainer_group.h"
#include "manta/v1/progress.pb.h"
#include "manta/v1/trainer.pb.h"

namespace manta::controller {

// A step of the run whose training is done. What follows it (weights to the generators, validation, checkpoint, its line of
// metrics) may be done or not.
struct TrainedStep {
  v1::StepNote note;
  v1::TrainReply reply;  // of its last optimiser step
};

enum class Rest {
  kQuiet,   // no rank works
  kBusy,    // some do; they will end
  kPartly,  // some do, others are idle: they have done their part, or have not had the call
  kUneven,  // some work on a call that others, which are idle, have not had
};
Rest RestOf(const std::vector<v1::TrainerState>& ranks);

// The note that all ranks agree on; empty where no step was taken since they were configured. FAILED_PRECONDITION with the
// reason where they are not configured, differ, or are between two parts of a step.
absl::StatusOr<std::optional<v1::StepNote>> AgreedNote(const std::vector<v1::TrainerState>& ranks);

struct Patience {
  absl::Duration poll = absl::Milliseconds(50);
  absl::Duration quiet = absl::Milliseconds(150);   // so long must nothing have begun: a last call may be on its way
  absl::Duration uneven = absl::Seconds(3);         // for a call on its way to reach the others
  absl::Duration partly = absl::Seconds(15);        // one rank's part may take so much longer than another's
  absl::Duration longest = absl::Minutes(60);       // that one call may take
};

// Waits until the ranks are at rest, and says which step they have taken last; empty: none. An error says why they cannot
// go on.
Task<absl::StatusOr<std::optional<TrainedStep>>> AwaitTrainedStep(EventLoop* loop, TrainerGroup* trainers, CancelToken stop,
                                                                  Patience patience);

// To and from the fields that a checkpoint has too.
TrainingInfo InfoOf(const v1::StepNote& note);
v1::StepNote NoteOf(const TrainingInfo& info);

}  // namespace manta::controller

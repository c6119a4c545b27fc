#include "controller/algorithms/training_loop.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace manta::controller {

TrainingLoop::TrainingLoop(LoopContext context, Schedule schedule, uint64_t data_seed)
    : context_(std::move(context)), schedule_(schedule), info_(context_.start) {
  info_.data_seed = data_seed;
}

void TrainingLoop::BeginPhase(const char* phase, const std::string& detail) {
  phases_.Begin(phase);
  context_.events.Phase(absl::StrCat("step ", next_step(), ": ", phase, detail.empty() ? "" : ", ", detail));
}

std::string TrainingLoop::Note(const TrainingInfo& after, int part, int parts, int64_t samples) {
  v1::StepNote note = NoteOf(after);
  note.set_step(next_step());
  note.set_part(part);
  note.set_parts(parts);
  note.set_began(absl::ToDoubleSeconds(timer_.begin() - absl::UnixEpoch()));
  note.set_samples(samples);
  note.mutable_metrics()->insert(metrics_.begin(), metrics_.end());
  for (const auto& [name, value] : phases_.seconds()) (*note.mutable_metrics())[absl::StrCat("timing/train/", name)] = value;
  return note.SerializeAsString();
}

void TrainingLoop::AddTrainReply(const v1::TrainReply& reply) {
  for (const auto& [name, value] : reply.metrics()) metrics_[absl::StrCat("train/", name)] = value;
  metrics_["train/grad_norm"] = reply.grad_norm();
  metrics_["train/lr"] = reply.lr();
}

Task<absl::StatusOr<RunOutcome>> TrainingLoop::Run() {
  context_.events.At(info_.step, schedule_.num_steps);
  if (info_.step >= schedule_.num_steps && !context_.unfinished) {
    context_.events.Text(NothingLeft(info_.step, schedule_.num_steps));
    co_return outcome_;
  }
  MANTA_CO_RETURN_IF_ERROR(co_await Prepare());
  MANTA_CO_RETURN_IF_ERROR(co_await Continue());
  if (!enough_.empty()) {
    context_.events.Text(absl::StrCat(enough_, " after step ", info_.step));
    co_return outcome_;
  }
  // A run that goes on has the line of step 0 where it is past that.
  if (schedule_.val_at_start && info_.step == 0 && context_.logger.history().empty()) {
    context_.events.Phase("validation");
    MANTA_CO_RETURN_IF_ERROR(co_await Validate());
    if (!metrics_.empty()) {
      MANTA_CO_RETURN_IF_ERROR(context_.logger.Log(0, info_.weight_version, metrics_));
      context_.events.Step(0, schedule_.num_steps, 0, metrics_);
    }
    if (const std::string reached = schedule_.stop_at.Reached(metrics_); !reached.empty()) {
      context_.events.Text(absl::StrCat(reached, " before the first step: there is nothing to train"));
      co_return outcome_;
    }
  }
  while (info_.step < schedule_.num_steps) {
    if (context_.stop.cancelled()) co_return context_.stop.status();
    absl::StatusOr<bool> went_on = co_await Step();
    if (!went_on.ok()) co_return Annotate(went_on.status(), absl::StrCat("step ", next_step()));
    if (!*went_on) {
      MANTA_CO_RETURN_IF_ERROR(co_await FinishEarly());
      break;
    }
    if (!enough_.empty()) {
      context_.events.Text(absl::StrCat(enough_, " after step ", info_.step));
      break;
    }
  }
  co_return outcome_;
}

Task<absl::Status> TrainingLoop::Continue() {
  if (!context_.continued) co_return absl::OkStatus();
  if (const auto saved = context_.checkpointer.Find(info_.step); saved && config().checkpointing.enabled) {
    saved_ = info_.step;
    outcome_.checkpoint = saved->string();
  }
  if (!context_.unfinished) {
    const auto& history = context_.logger.history();
    if (history.empty() || history.back().step != info_.step) co_return absl::OkStatus();
    for (const auto& [name, value] : history.back().values) {
      if (absl::StartsWith(name, "validation/")) validated_ = info_.step;
    }
    if (validated_ == info_.step) enough_ = schedule_.stop_at.Reached(history.back().values);
    co_return absl::OkStatus();
  }
  const v1::StepNote& note = context_.unfinished->note;
  metrics_.insert(note.metrics().begin(), note.metrics().end());
  AddTrainReply(context_.unfinished->reply);
  step_samples_ = note.samples();
  timer_.Begin(absl::UnixEpoch() + absl::Seconds(note.began()));  // the time without a controller is the step's
  phases_ = PhaseTimes();
  MANTA_CO_RETURN_IF_ERROR(co_await ValidateAndSave(info_.step == schedule_.num_steps));
  phases_.Begin("");
  co_return Log(timer_.End());
}

Task<absl::StatusOr<bool>> TrainingLoop::Step() {
  timer_.Begin();
  phases_ = PhaseTimes();
  metrics_.clear();
  MANTA_CO_ASSIGN_OR_RETURN(const bool trained, co_await TrainStep());
  if (!trained) co_return false;
  ++info_.step;
  MANTA_CO_RETURN_IF_ERROR(co_await ValidateAndSave(info_.step == schedule_.num_steps));
  phases_.Begin("");
  MANTA_CO_RETURN_IF_ERROR(Log(timer_.End()));
  co_return true;
}

Task<absl::Status> TrainingLoop::ValidateAndSave(bool last) {
  int64_t num_steps = last ? info_.step : schedule_.num_steps;
  if (validated_ != info_.step &&
      ValidateAfter(info_.step, num_steps, schedule_.val_period, schedule_.val_start_at, schedule_.val_at_end)) {
    phases_.Begin("validation");
    context_.events.Phase(absl::StrCat("step ", info_.step, ": validation"));
    MANTA_CO_RETURN_IF_ERROR(co_await Validate());
    validated_ = info_.step;
    enough_ = schedule_.stop_at.Reached(metrics_);
    if (!enough_.empty()) num_steps = info_.step;  // it is the last, and is saved as such
  }
  if (saved_ != info_.step && SaveAfter(info_.step, num_steps, config().checkpointing)) {
    phases_.Begin("checkpointing");
    MANTA_CO_RETURN_IF_ERROR(co_await Save());
  }
  co_return absl::OkStatus();
}

// The data is over: the step before was the last, and is validated and saved as the last is.
Task<absl::Status> TrainingLoop::FinishEarly() {
  context_.events.Text(absl::StrCat("the data came to its end after step ", info_.step));
  if (info_.step == context_.start.step && !context_.continued) co_return absl::OkStatus();
  metrics_.clear();
  MANTA_CO_RETURN_IF_ERROR(co_await ValidateAndSave(/*last=*/true));
  if (metrics_.empty()) co_return absl::OkStatus();
  MANTA_CO_RETURN_IF_ERROR(context_.logger.Log(info_.step, info_.weight_version, metrics_));
  context_.events.Step(info_.step, info_.step, 0, metrics_);
  co_return absl::OkStatus();
}

absl::Status TrainingLoop::Log(double seconds) {
  for (const auto& [name, value] : phases_.seconds()) metrics_[absl::StrCat("timing/train/", name)] = value;
  metrics_["timing/train/total_step_time"] = seconds;
  metrics_["performance/samples_per_sec"] = static_cast<double>(step_samples_) / seconds;
  metrics_["performance/tokens_per_sec"] = metrics_["train/total_num_tokens"] / seconds;
  MANTA_RETURN_IF_ERROR(context_.logger.Log(info_.step, info_.weight_version, metrics_));
  context_.events.Step(info_.step, schedule_.num_steps, timer_.SecondsLeft(schedule_.num_steps - info_.step), metrics_);
  return absl::OkStatus();
}

Task<absl::Status> TrainingLoop::Save() {
  context_.events.Phase(absl::StrCat("step ", info_.step, ": saving the checkpoint"));
  MANTA_CO_ASSIGN_OR_RETURN(const auto policy, context_.checkpointer.Begin(info_.step));
  const std::string key = absl::StrCat(context_.job, "/save/", info_.step, "@", absl::ToUnixMicros(absl::Now()));
  const bool optimizer = config().checkpointing.save_optimizer;
  MANTA_CO_RETURN_IF_ERROR(co_await context_.trainers->Save(policy.string(), optimizer, key));
  info_.metric = CheckpointMetric(config().checkpointing, metrics_);
  info_.metrics = metrics_;
  info_.time = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  info_.run_dir = context_.run_dir.string();
  MANTA_CO_ASSIGN_OR_RETURN(const auto path, context_.checkpointer.Commit(info_, context_.config_yaml));
  outcome_.checkpoint = path.string();
  saved_ = info_.step;
  co_return absl::OkStatus();
}

}  // namespace manta::controller

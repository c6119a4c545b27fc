#include "controller/algorithms/continuation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::controller {

Rest RestOf(const std::vector<v1::TrainerState>& ranks) {
  Rest rest = Rest::kQuiet;
  for (const v1::TrainerState& busy : ranks) {
    if (busy.begun() == busy.ended()) continue;
    rest = std::max(rest, Rest::kBusy);
    // Nobody trains or saves without the others; publishing each does by itself.
    const bool together =
        absl::StrContains(busy.running(), "/train/") || absl::StrContains(busy.running(), "/save/");
    for (const v1::TrainerState& idle : ranks) {
      if (idle.begun() != idle.ended()) continue;
      if (together && idle.ended_key() != busy.running()) return Rest::kUneven;
      if (busy.running().empty()) rest = std::max(rest, Rest::kPartly);
    }
  }
  return rest;
}

absl::StatusOr<std::optional<v1::StepNote>> AgreedNote(const std::vector<v1::TrainerState>& ranks) {
  for (const v1::TrainerState& rank : ranks) {
    if (!rank.configured()) return absl::FailedPreconditionError("the trainer was not configured yet");
    if (rank.step() != ranks[0].step() || rank.trained_key() != ranks[0].trained_key() ||
        rank.trained_note() != ranks[0].trained_note()) {
      return absl::FailedPreconditionError(absl::StrCat("the trainer's ranks differ: one has taken ", ranks[0].step(),
                                                        " optimiser steps (", ranks[0].trained_key(), "), another ",
                                                        rank.step(), " (", rank.trained_key(), ")"));
    }
  }
  if (ranks.empty() || ranks[0].trained_key().empty()) return std::optional<v1::StepNote>();
  v1::StepNote note;
  if (!note.ParseFromString(ranks[0].trained_note()) || note.step() < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the trainer's note of ", ranks[0].trained_key(), " is not one that this controller can read"));
  }
  if (note.part() != note.parts()) {
    return absl::FailedPreconditionError(absl::StrCat("step ", note.step(), " was trained in part: ", note.part(), " of ",
                                                      note.parts(), " optimiser steps"));
  }
  return std::optional<v1::StepNote>(std::move(note));
}

Task<absl::StatusOr<std::optional<TrainedStep>>> AwaitTrainedStep(EventLoop* loop, TrainerGroup* trainers, CancelToken stop,
                                                                  Patience patience) {
  const absl::Time end = loop->Now() + patience.longest;
  absl::Time quiet_since = absl::InfiniteFuture(), uneven_since = quiet_since, partly_since = quiet_since;
  uint64_t begun = 0;
  std::vector<v1::TrainerState> ranks;
  while (true) {
    MANTA_CO_ASSIGN_OR_RETURN(ranks, co_await trainers->States());
    const absl::Time now = loop->Now();
    const Rest rest = RestOf(ranks);
    uint64_t sum = 0;
    for (const v1::TrainerState& rank : ranks) sum += rank.begun();
    if (rest != Rest::kQuiet || sum != begun) quiet_since = now;
    if (rest != Rest::kUneven || sum != begun) uneven_since = now;
    if (rest != Rest::kPartly || sum != begun) partly_since = now;
    begun = sum;
    if (rest == Rest::kQuiet && now - quiet_since >= patience.quiet) break;
    if (now - uneven_since >= patience.uneven || now - partly_since >= patience.partly) {
      co_return absl::FailedPreconditionError("a call of the controller before reached some of the trainer's ranks only");
    }
    if (now >= end) co_return absl::DeadlineExceededError("the trainer's ranks do not come to rest");
    MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*loop, patience.poll, stop));
  }
  absl::StatusOr<std::optional<v1::StepNote>> note = AgreedNote(ranks);
  if (!note.ok()) co_return note.status();
  if (!note->has_value()) co_return std::optional<TrainedStep>();
  const std::string key = ranks[0].trained_key();
  absl::StatusOr<v1::TrainReply> reply = co_await trainers->Trained(key);
  if (!reply.ok()) co_return reply.status();
  TrainedStep step{.note = **std::move(note), .reply = *std::move(reply)};
  co_return std::optional<TrainedStep>(std::move(step));
}

TrainingInfo InfoOf(const v1::StepNote& note) {
  TrainingInfo info;
  info.step = note.step();
  info.consumed_samples = note.consumed_samples();
  info.epoch = note.epoch();
  info.position = note.position();
  info.data_seed = note.data_seed();
  info.weight_version = note.weight_version();
  return info;
}

v1::StepNote NoteOf(const TrainingInfo& info) {
  v1::StepNote note;
  note.set_step(info.step);
  note.set_consumed_samples(info.consumed_samples);
  note.set_epoch(info.epoch);
  note.set_position(info.position);
  note.set_data_seed(info.data_seed);
  note.set_weight_version(info.weight_version);
  return note;
}

}  // namespace manta::controller

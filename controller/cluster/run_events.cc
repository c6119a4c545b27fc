#include "controller/cluster/run_events.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "common/base/status.h"
#include "spdlog/spdlog.h"

namespace manta::controller {

v1::RunEvent* RunEvents::Add() {
  if (events_.size() >= capacity_) events_.pop_front();
  v1::RunEvent& event = events_.emplace_back();
  event.set_sequence(next_sequence_++);
  event.set_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  return &event;
}

void RunEvents::Notify() {
  const auto listeners = listeners_;  // one may remove itself
  for (const auto& [id, listener] : listeners) listener();
}

void RunEvents::Phase(const std::string& name, double fraction) {
  if (ended_) return;
  v1::RunPhase* phase = Add()->mutable_phase();
  phase->set_name(name);
  phase->set_fraction(fraction);
  Notify();
}

void RunEvents::Step(int64_t step, int64_t num_steps, double seconds_left,
                     const std::map<std::string, double>& metrics) {
  if (ended_) return;
  step_ = step;
  num_steps_ = num_steps;
  v1::RunStep* event = Add()->mutable_step();
  event->set_step(step);
  event->set_num_steps(num_steps);
  event->set_seconds_left(seconds_left);
  event->mutable_metrics()->insert(metrics.begin(), metrics.end());
  Notify();
}

void RunEvents::At(int64_t step, int64_t num_steps) {
  step_ = step;
  num_steps_ = num_steps;
}

void RunEvents::Text(const std::string& text) {
  if (ended_) return;
  spdlog::info("{}", text);
  Add()->mutable_text()->set_text(text);
  Notify();
}

void RunEvents::Warning(const std::string& text) {
  if (ended_) return;
  spdlog::warn("{}", text);
  v1::RunText* event = Add()->mutable_text();
  event->set_text(text);
  event->set_warning(true);
  Notify();
}

void RunEvents::Ended(const absl::Status& status, const std::string& checkpoint, const std::string& summary) {
  if (ended_) return;
  if (status.ok()) {
    spdlog::info("the run has ended");
  } else {
    spdlog::error("the run has failed: {}", std::string(status.message()));
    const v1::ErrorInfo info = GetErrorInfo(status);  // outlives the loop over its lines
    for (const std::string& line : info.last_lines()) spdlog::error("  | {}", line);
  }
  v1::RunEnded* event = Add()->mutable_ended();
  *event->mutable_status() = ToProto(status);
  event->set_checkpoint(checkpoint);
  event->set_summary(summary);
  ended_ = true;
  Notify();
}

std::vector<v1::RunEvent> RunEvents::After(uint64_t sequence, size_t max) const {
  auto first = std::upper_bound(events_.begin(), events_.end(), sequence,
                                [](uint64_t s, const v1::RunEvent& event) { return s < event.sequence(); });
  const size_t n = std::min<size_t>(max, events_.end() - first);
  return std::vector<v1::RunEvent>(first, first + n);
}

uint64_t RunEvents::AddListener(std::function<void()> listener) {
  listeners_.emplace(next_listener_, std::move(listener));
  return next_listener_++;
}

}  // namespace manta::controller

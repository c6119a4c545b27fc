#include "common/rpc/refusals.h"

#include <array>
#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/audit_log.h"

namespace manta::rpc {
namespace {

constexpr int kLinesPerSecond = 10;

struct Reason {
  std::atomic<uint64_t> count = 0;
  absl::Mutex mutex;
  absl::Time second ABSL_GUARDED_BY(mutex) = absl::InfinitePast();  // when the current second began
  int lines ABSL_GUARDED_BY(mutex) = 0;                             // in it
  uint64_t untold ABSL_GUARDED_BY(mutex) = 0;
};

Reason& Of(Refusal reason) {
  static auto& reasons = *new std::array<Reason, kNumRefusals>();
  return reasons[static_cast<size_t>(reason)];
}

// Where the reason's second has passed, another begins, and those without a line in the last one are told.
void TellMore(Refusal reason) {
  Reason& state = Of(reason);
  uint64_t untold = 0;
  {
    absl::MutexLock lock(&state.mutex);
    const absl::Time now = absl::Now();
    if (now - state.second < absl::Seconds(1)) return;
    state.second = now;
    state.lines = 0;
    untold = std::exchange(state.untold, 0);
  }
  if (untold == 0) return;
  AuditLog::Process().Refused(absl::StrCat("reason=", RefusalName(reason), " and ", untold, " more like it"));
}

}  // namespace

absl::string_view RefusalName(Refusal reason) {
  static constexpr std::array<absl::string_view, kNumRefusals> kNames = {
      "no_token", "wrong_token", "role", "certificate",         "method", "rate", "message",
      "tls",      "first_bytes", "slow", "too_many_connections"};
  return kNames[static_cast<size_t>(reason)];
}

void Refuse(Refusal reason, absl::string_view detail) {
  Reason& state = Of(reason);
  state.count.fetch_add(1, std::memory_order_relaxed);
  TellMore(reason);
  {
    absl::MutexLock lock(&state.mutex);
    if (state.lines == kLinesPerSecond) {
      ++state.untold;
      return;
    }
    ++state.lines;
  }
  AuditLog::Process().Refused(absl::StrCat("reason=", RefusalName(reason), " ", detail));
}

void TellRefusals() {
  for (int i = 0; i < kNumRefusals; ++i) TellMore(static_cast<Refusal>(i));
}

uint64_t RefusalCount(Refusal reason) {
  return Of(reason).count.load(std::memory_order_relaxed);
}

std::map<std::string, double> RefusalCounters() {
  std::map<std::string, double> counters;
  for (int i = 0; i < kNumRefusals; ++i) {
    const auto reason = static_cast<Refusal>(i);
    counters[absl::StrCat("manta_rpc_refused_total{reason=\"", RefusalName(reason), "\"}")] =
        static_cast<double>(RefusalCount(reason));
  }
  return counters;
}

}  // namespace manta::rpc

#include "common/comm/weight_receiver.h"

#include <algorithm>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/comm/weight_holder.h"

namespace manta::comm {
namespace {

class Receiver {
 public:
  Receiver(const v1::WeightSources& sources, const ChannelOpener& open_channel,
           absl::Span<const DestinationSlice> destinations, const ReceiveOptions& options)
      : sources_(sources),
        destinations_(destinations),
        options_(options),
        deadline_(absl::Now() + options.timeout),
        start_(absl::Now()) {
    for (const std::string& address : sources.addresses()) {
      holders_.push_back(std::make_unique<WeightHolder>(address, open_channel));
    }
  }

  absl::StatusOr<ReceiveReport> Run() {
    if (holders_.empty()) return absl::InvalidArgumentError("no address of a weight source is given");
    MANTA_RETURN_IF_ERROR(DescribeAll());
    std::set<int> pending;
    for (size_t i = 0; i < destinations_.size(); ++i) {
      pending.insert(static_cast<int>(i));
      report_.bytes += destinations_[i].spec.bytes();
    }
    // Every round leaves out at least one more holder, so there is an end to them.
    while (!pending.empty()) MANTA_RETURN_IF_ERROR(Round(pending));
    for (const auto& holder : holders_) {
      holder->StartRelease();
      report_.shared_memory_bytes += holder->shared_memory_bytes();
      report_.failed_sources += !holder->status().ok();
    }
    const bool shared = report_.shared_memory_bytes > 0, streamed = report_.shared_memory_bytes < report_.bytes;
    report_.transport = shared && streamed ? "shared_memory+grpc" : shared ? "shared_memory" : "grpc";
    report_.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
    return report_;
  }

 private:
  template <typename Function>
  void OnEach(const std::vector<WeightHolder*>& holders, const Function& function) {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < holders.size(); ++i) threads.emplace_back([&, i] { function(*holders[i]); });
    if (!holders.empty()) function(*holders[0]);
    for (std::thread& thread : threads) thread.join();
  }

  absl::Status DescribeAll() {
    std::vector<WeightHolder*> all;
    for (const auto& holder : holders_) all.push_back(holder.get());
    OnEach(all, [&](WeightHolder& holder) {
      holder.Describe(sources_.version(), options_.allow_shared_memory, options_.verify, deadline_);
    });
    uint64_t version = 0;
    for (const WeightHolder* holder : all) {
      if (holder->status().ok()) version = std::max(version, holder->version());
    }
    if (version == 0) return Annotate(WorstStatus(), absl::StrCat("no holder of weights answers: ", Failures()));
    for (WeightHolder* holder : all) {
      if (holder->status().ok() && holder->version() != version) {
        holder->LeaveOut(absl::FailedPreconditionError(absl::StrCat("its newest version is ", holder->version())));
      }
    }
    if (version < options_.min_version) {
      return absl::FailedPreconditionError(absl::StrCat("weight version ", version, " is offered, ",
                                                        options_.min_version,
                                                        " is here already: versions never go back"));
    }
    report_.version = version;
    return absl::OkStatus();
  }

  // Plans what is pending over the holders that are left, and carries it out.
  absl::Status Round(std::set<int>& pending) {
    std::vector<ShardTable> tables;
    for (const auto& holder : holders_) tables.push_back(holder->status().ok() ? holder->slices() : ShardTable());
    const std::vector<int> wanted(pending.begin(), pending.end());
    std::vector<ShardTable> table(1);
    for (const int i : wanted) table[0].push_back(destinations_[i].spec);
    absl::StatusOr<std::vector<Transfer>> plan = PlanTransfers(tables, table);
    if (!plan.ok()) {
      const std::string failures = Failures();
      if (failures.empty() || !absl::IsNotFound(plan.status())) return plan.status();
      const absl::Status worst = WorstStatus();
      return WithErrorInfo(absl::Status(worst.code(), absl::StrCat(plan.status().message(), " (", failures, ")")),
                           GetErrorInfo(worst));
    }
    std::vector<std::vector<PlannedBox>> work(holders_.size());
    for (const Transfer& t : *plan) {
      work[t.source_rank].push_back({t.source_slice, &destinations_[wanted[t.destination_slice]], t.box});
    }
    std::vector<WeightHolder*> busy;
    for (size_t h = 0; h < holders_.size(); ++h) {
      if (!work[h].empty()) busy.push_back(holders_[h].get());
    }
    OnEach(busy, [&](WeightHolder& holder) {
      const size_t h = static_cast<size_t>(
          std::find_if(holders_.begin(), holders_.end(), [&](const auto& p) { return p.get() == &holder; }) -
          holders_.begin());
      holder.Transfer(work[h], options_, deadline_);
    });
    pending.clear();
    for (const Transfer& t : *plan) {
      if (!holders_[t.source_rank]->status().ok()) pending.insert(wanted[t.destination_slice]);
    }
    if (!pending.empty() && absl::Now() >= deadline_) {
      return absl::DeadlineExceededError(absl::StrCat("weight version ", report_.version, " did not come within ",
                                                      absl::FormatDuration(options_.timeout), ": ", Failures()));
    }
    return absl::OkStatus();
  }

  std::string Failures() const {
    std::vector<std::string> failures;
    for (const auto& holder : holders_) {
      if (!holder->status().ok()) failures.push_back(absl::StrCat(holder->address(), ": ", holder->status().message()));
    }
    return absl::StrJoin(failures, "; ");
  }

  // The error that says most: damaged bytes before weights that are being replaced before a holder that is gone.
  absl::Status WorstStatus() const {
    absl::Status worst;
    for (const auto& holder : holders_) {
      if (holder->status().ok()) continue;
      if (worst.ok() || absl::IsDataLoss(holder->status()) ||
          (absl::IsAborted(holder->status()) && !absl::IsDataLoss(worst))) {
        worst = holder->status();
      }
    }
    return worst;
  }

  const v1::WeightSources& sources_;
  const absl::Span<const DestinationSlice> destinations_;
  const ReceiveOptions& options_;
  const absl::Time deadline_, start_;
  std::vector<std::unique_ptr<WeightHolder>> holders_;
  ReceiveReport report_;
};

}  // namespace

absl::StatusOr<ReceiveReport> ReceiveWeights(const v1::WeightSources& sources, const ChannelOpener& open_channel,
                                             absl::Span<const DestinationSlice> destinations,
                                             const ReceiveOptions& options) {
  return Receiver(sources, open_channel, destinations, options).Run();
}

}  // namespace manta::comm

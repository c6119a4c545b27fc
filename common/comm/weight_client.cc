#include "common/comm/weight_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace manta::comm {
namespace {

constexpr int kMaxSkip = 63;
constexpr absl::Duration kAskAgain = absl::Milliseconds(100);

}  // namespace

WeightClient::WeightClient(WeightClientOptions options) : options_(std::move(options)) {
  if (options_.transport != nullptr) {
    device_ = std::make_unique<DeviceReader>(options_.transport, options_.open_channel, options_.device);
  }
}

void WeightClient::Log(bool warning, const std::string& message) const {
  if (options_.log) options_.log(warning, message);
}

absl::StatusOr<ReceiveReport> WeightClient::Update(const v1::WeightSources& sources,
                                                   const WeightDestination& destination, ReceiveOptions options) {
  options.min_version = std::max(newest_, sources.version());
  options.copy = destination.copy;
  const absl::Time start = absl::Now(), deadline = start + options.timeout;
  v1::WeightSources wanted = sources;
  for (;;) {
    absl::StatusOr<ReceiveReport> report = Once(wanted, destination, options);
    if (report.ok()) {
      version_ = newest_ = report->version;
      report->seconds = absl::ToDoubleSeconds(absl::Now() - start);
      if (report->transport != transport_) Log(false, absl::StrCat("weights come by ", report->transport));
      transport_ = report->transport;
      return report;
    }
    // Where the version is being replaced, or has been, a newer one will do.
    const bool replaced = absl::IsFailedPrecondition(report.status()) && wanted.version() != 0;
    const bool being_replaced = absl::IsAborted(report.status()) && absl::Now() + kAskAgain < deadline;
    if (!replaced && !being_replaced) return report.status();
    wanted.set_version(0);
    if (being_replaced) absl::SleepFor(kAskAgain);
    options.timeout = deadline - absl::Now();
  }
}

bool WeightClient::TriesDevice(const v1::WeightSources& sources) {
  if (device_ == nullptr) return false;
  if (std::string addresses = absl::StrJoin(sources.addresses(), " "); addresses != addresses_) {
    addresses_ = std::move(addresses);
    host_only_ = false;
    failures_ = skip_ = 0;
  }
  if (host_only_) return false;
  if (skip_ == 0) return true;
  --skip_;
  return false;
}

absl::StatusOr<ReceiveReport> WeightClient::Once(const v1::WeightSources& sources, const WeightDestination& destination,
                                                 const ReceiveOptions& options) {
  if (!TriesDevice(sources)) return ByHost(sources, destination, options);
  const auto exclusively = [&](uint64_t version, const std::function<absl::Status()>& move) {
    return destination.exclusively(version, move, [this] { return device_->written(); });
  };
  absl::StatusOr<ReceiveReport> report = device_->Receive(sources, destination.weights, options, exclusively);
  if (report.ok()) {
    failures_ = 0;
    return report;
  }
  // Between two versions: the one that was asked for may have been kept on the host.
  if (absl::IsAborted(report.status()) && !device_->written()) return ByHost(sources, destination, options);
  if (device_->written()) version_ = 0;
  if (absl::IsUnimplemented(report.status())) {
    host_only_ = true;
    Log(false, absl::StrCat("weights do not go from GPU to GPU here: ", report.status().message()));
  } else {
    ++failures_;
    skip_ = std::min(kMaxSkip, (1 << std::min(failures_ - 1, 6)) - 1);
    Log(true, absl::StrCat("weights did not come from GPU to GPU, and come through the host now: ",
                           report.status().message()));
  }
  absl::StatusOr<ReceiveReport> by_host = ByHost(sources, destination, options);
  // Both say something; the first is what is wrong.
  if (!by_host.ok() && !absl::IsUnimplemented(report.status()) && !absl::IsAborted(by_host.status())) {
    return Annotate(by_host.status(), absl::StrCat("from GPU to GPU: ", report.status().message(), "; by the host"));
  }
  return by_host;
}

absl::StatusOr<ReceiveReport> WeightClient::ByHost(const v1::WeightSources& sources,
                                                   const WeightDestination& destination,
                                                   const ReceiveOptions& options) {
  MANTA_ASSIGN_OR_RETURN(const std::vector<DestinationSlice> staging, destination.staging());
  MANTA_ASSIGN_OR_RETURN(const ReceiveReport report, ReceiveWeights(sources, options_.open_channel, staging, options));
  MANTA_RETURN_IF_ERROR(destination.exclusively(report.version, destination.swap, nullptr));
  return report;
}

}  // namespace manta::comm

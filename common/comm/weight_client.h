// WeightClient: how a reader of weights takes one version after the other, by the best way there is.
//
// Where reader and holders have GPUs, from memory to memory (device_reader.h); otherwise, or where that fails, through
// the host's memory (weight_receiver.h). Which way is taken follows from where the two sides are; it is logged when it
// changes, and a failure of the GPU's way with one line. A way that has failed is tried again with the next version,
// after a second failure in a row one version later, then three, seven, up to 63: a broken way costs its time-out
// seldom.
//
// Versions never go back. Where the one asked for has been replaced, the newest is taken; while the holders are between
// two versions it waits for the next, within the time-out. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/device_reader.h"
#include "common/comm/weight_receiver.h"

namespace manta::comm {

struct WeightClientOptions {
  ChannelOpener open_channel;
  std::shared_ptr<DeviceTransport> transport;                         // null: no GPU
  std::function<void(bool warning, const std::string& message)> log;  // may be null
  DeviceReaderOptions device;
};

// Where the weights go.
struct WeightDestination {
  std::vector<DestinationSlice> weights;  // as they are used; written only between `exclusively`
  // The same slices in memory that is not in use, for the way through the host; asked for when that is taken.
  std::function<absl::StatusOr<std::vector<DestinationSlice>>()> staging;
  std::function<absl::Status()> swap;  // brings what is staged to the weights; runs in `exclusively`
  CopyFunction copy;                   // from host memory to the staging's
  // Runs `write` while nobody uses the weights. After an error of it they are what they were, unless `in_pieces`, which
  // may be null, says otherwise.
  std::function<absl::Status(uint64_t version, const std::function<absl::Status()>& write,
                             const std::function<bool()>& in_pieces)>
      exclusively;
};

class WeightClient {
 public:
  explicit WeightClient(WeightClientOptions options);

  // Of `options` the copy function is the destination's, and min_version the version that is here already.
  [[nodiscard]] absl::StatusOr<ReceiveReport> Update(const v1::WeightSources& sources,
                                                     const WeightDestination& destination, ReceiveOptions options);

  uint64_t version() const { return version_; }  // 0: none, or in pieces

 private:
  absl::StatusOr<ReceiveReport> Once(const v1::WeightSources& sources, const WeightDestination& destination,
                                     const ReceiveOptions& options);
  bool TriesDevice(const v1::WeightSources& sources);
  absl::StatusOr<ReceiveReport> ByHost(const v1::WeightSources& sources, const WeightDestination& destination,
                                       const ReceiveOptions& options);
  void Log(bool warning, const std::string& message) const;

  const WeightClientOptions options_;
  std::unique_ptr<DeviceReader> device_;
  std::string addresses_;  // that what follows is about
  bool host_only_ = false;
  int failures_ = 0, skip_ = 0;
  std::string transport_;  // that was logged last
  uint64_t version_ = 0;
  uint64_t newest_ = 0;  // ever taken
};

}  // namespace manta::comm

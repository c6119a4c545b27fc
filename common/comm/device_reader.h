// DeviceReader: brings versions of the weights from their holders' GPU memory straight into this process's.
//
// It keeps a session with each holder, mapped memory (CUDA IPC) and a communicator (NCCL) from one version to the next.
// The communicator is this reader's and its sources' alone: a reader that comes, goes or dies concerns no other. After
// an error sessions and communicator are dropped, and the next call makes new ones.
//
// Nothing is written to the destinations before `exclusively` runs what it is given. An error after that may leave them
// in pieces: written() says so. Every wait has a deadline, and ends within a second of a holder's death. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/device_link.h"
#include "common/comm/transfer_buckets.h"
#include "common/comm/weight_receiver.h"

namespace manta::comm {

struct DeviceReaderOptions {
  absl::Duration hello_timeout = absl::Seconds(10);
  absl::Duration join_timeout = absl::Seconds(60);
  absl::Duration transfer_timeout = absl::Minutes(2);
  uint64_t bucket_bytes = uint64_t{64} << 20;
  uint64_t direct_bytes = uint64_t{1} << 20;  // smaller boxes are packed together
};

// Runs `move` while nobody uses the destinations, and returns what it returns; an error of its own where it cannot.
using Exclusively = std::function<absl::Status(uint64_t version, const std::function<absl::Status()>& move)>;

class DeviceReader {
 public:
  DeviceReader(std::shared_ptr<DeviceTransport> transport, ChannelOpener open_channel,
               DeviceReaderOptions options = {});
  ~DeviceReader();

  // UNIMPLEMENTED where these holders have no way from GPU to GPU for all of it: use the host's. ABORTED while the
  // weights are being replaced: ask again. Otherwise as ReceiveWeights.
  [[nodiscard]] absl::StatusOr<ReceiveReport> Receive(const v1::WeightSources& sources,
                                                      absl::Span<const DestinationSlice> destinations,
                                                      const ReceiveOptions& options, const Exclusively& exclusively);

  // Whether the last Receive failed after it had begun to write.
  bool written() const { return written_; }

 private:
  struct Source;
  absl::Status ConnectAll(const v1::WeightSources& sources);
  absl::Status ReadOffer(Source& source, const v1::DeviceOffer& offer);
  absl::Status Plan(absl::Span<const DestinationSlice> destinations);
  absl::Status JoinGroup();
  absl::StatusOr<uint64_t> AskToRead(uint64_t version, const ReceiveOptions& options,
                                     absl::Span<const DestinationSlice> destinations);
  absl::Status Move(absl::Span<const DestinationSlice> destinations, bool verify);
  absl::Status ReceiveByNccl(const std::vector<Source*>& sources);
  absl::Status CheckAll() const;
  std::vector<Source*> Used(v1::WeightTransport transport) const;
  void Drop();

  const std::shared_ptr<DeviceTransport> transport_;
  const ChannelOpener open_channel_;
  const DeviceReaderOptions options_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::unique_ptr<PeerGroup> group_;
  std::vector<std::string> group_members_;  // addresses, in the order of their ranks
  absl::Time deadline_;                     // of the transfer
  bool written_ = false;
};

}  // namespace manta::comm

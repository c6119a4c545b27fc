// WeightHolder: the receiver's view of one holder of weights: what it has, and how its bytes come here. Internal to
// weight_receiver.
//
// Its status is OK until something goes wrong with it; then it stays out. One thread at a time uses it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/weight_receiver.h"
#include "manta/v1/weights.grpc.pb.h"

namespace manta::comm {

struct PlannedBox {
  int source_slice;  // index into slices()
  const DestinationSlice* destination;
  Box box;
};

class WeightHolder {
 public:
  WeightHolder(std::string address, const ChannelOpener& open_channel);
  ~WeightHolder();  // waits, for 2 s at most, until the memory that was mapped has been given back

  // Asks for the manifest of a version; where it offers shared memory, maps it.
  void Describe(uint64_t version, bool shared_memory, bool checksums, absl::Time deadline);

  // Brings the boxes to their destinations. On failure some may have been written.
  void Transfer(const std::vector<PlannedBox>& boxes, const ReceiveOptions& options, absl::Time deadline);

  // Tells the holder that its shared memory is not needed any more; the destructor does it where nobody did. Called on
  // all holders first, they are told side by side.
  void StartRelease();

  void LeaveOut(absl::Status why) { status_ = std::move(why); }

  const absl::Status& status() const { return status_; }
  const std::string& address() const { return address_; }
  uint64_t version() const { return manifest_.version(); }
  const std::vector<SliceSpec>& slices() const { return slices_; }
  uint64_t shared_memory_bytes() const { return shared_memory_bytes_; }

 private:
  struct ReleaseCall;

  absl::Status DescribeOrError(uint64_t version, bool shared_memory, bool checksums, absl::Time deadline);
  bool Map();
  absl::Status CopyFromMapping(const std::vector<PlannedBox>& boxes, const ReceiveOptions& options);
  absl::Status Fetch(const std::vector<PlannedBox>& boxes, const ReceiveOptions& options, absl::Time deadline);

  const std::string address_;
  const ChannelOpener& open_channel_;
  std::unique_ptr<v1::WeightSource::Stub> stub_;
  v1::WeightManifest manifest_;
  std::vector<SliceSpec> slices_;
  const std::byte* mapping_ = nullptr;
  uint64_t shared_memory_bytes_ = 0;
  absl::Status status_;
  std::unique_ptr<ReleaseCall> release_;
};

}  // namespace manta::comm

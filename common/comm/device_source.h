// DeviceSource: one reader's session on the GPU transports, from the side of who holds the weights (the states of
// WeightSource.Connect in proto/manta/v1/weights.proto).
//
// What is lent to the reader is given back, and its communicator aborted, when the conversation ends. Every wait but
// that for the next version ends at a deadline, or when the reader is gone. Used by one thread; the store must outlive
// it.
#pragma once

#include <memory>
#include <vector>

#include "common/comm/transfer_buckets.h"
#include "common/comm/weight_store.h"

namespace manta::comm {

// The messages to and from the other side.
class DeviceConversation {
 public:
  virtual ~DeviceConversation() = default;
  // Waits for the next request; an error where none came in time, or the other side is gone.
  virtual absl::StatusOr<v1::DeviceRequest> Next(absl::Duration timeout) = 0;
  virtual absl::Status Send(const v1::DeviceReply& reply) = 0;
  virtual absl::Status Check() = 0;  // an error once the other side is gone
};

class DeviceSource {
 public:
  DeviceSource(WeightStore* store, DeviceConversation* conversation) : store_(*store), conversation_(*conversation) {}

  // Answers until the reader leaves: OK, or what went wrong with the conversation itself.
  absl::Status Run();

 private:
  absl::Status Answer(const v1::DeviceRequest& request, v1::DeviceReply* reply);
  absl::Status Offer(const v1::DeviceEndpoint& reader, v1::DeviceOffer* offer);
  absl::Status Join(const v1::DeviceJoin& request);
  absl::Status Read(const v1::DeviceRead& request, v1::DeviceGranted* granted);
  absl::Status Proceed(v1::DeviceFinished* finished);
  absl::Status SendBoxes();

  WeightStore& store_;
  DeviceConversation& conversation_;
  std::shared_ptr<DeviceTransport> transport_;
  v1::WeightTransport choice_ = v1::WEIGHT_TRANSPORT_UNSPECIFIED;
  std::unique_ptr<PeerGroup> group_;
  int group_size_ = 0;

  // What has been granted.
  std::unique_ptr<WeightStore::Loan> loan_;
  std::vector<PlacedBox> boxes_;
  uint64_t bucket_bytes_ = 0;
  bool want_checksums_ = false;
  absl::Time deadline_;
};

}  // namespace manta::comm

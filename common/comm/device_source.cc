#include "common/comm/device_source.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/comm/box_checksum.h"
#include "common/comm/transport_choice.h"

namespace manta::comm {
namespace {

constexpr absl::Duration kMaxTimeout = absl::Minutes(10);
constexpr absl::Duration kHelloTimeout = absl::Seconds(30);
constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 30;

absl::Duration Timeout(int64_t milliseconds) {
  return std::clamp(absl::Milliseconds(milliseconds), absl::Milliseconds(1), kMaxTimeout);
}

}  // namespace

absl::Status DeviceSource::Run() {
  absl::Duration timeout = kHelloTimeout;
  for (;;) {
    const absl::StatusOr<v1::DeviceRequest> request = conversation_.Next(timeout);
    if (!request.ok()) {
      if (!absl::IsDeadlineExceeded(request.status())) return absl::OkStatus();  // the reader has left
      if (choice_ == v1::WEIGHT_TRANSPORT_UNSPECIFIED) return request.status();
      loan_ = nullptr;  // granted, and not made use of in time
      timeout = absl::InfiniteDuration();
      continue;
    }
    if (request->kind_case() == v1::DeviceRequest::kSkip) {
      store_.CountReader(request->skip().version());
      continue;
    }
    v1::DeviceReply reply;
    const absl::Status status = Answer(*request, &reply);
    if (!status.ok()) {
      loan_ = nullptr;
      *reply.mutable_status() = ToProto(status);
    }
    MANTA_RETURN_IF_ERROR(conversation_.Send(reply));
    // A reader comes back for the next version when there is one; with weights in its hand it must hurry.
    timeout = loan_ != nullptr ? std::max(deadline_ - absl::Now(), absl::ZeroDuration()) : absl::InfiniteDuration();
  }
}

absl::Status DeviceSource::Answer(const v1::DeviceRequest& request, v1::DeviceReply* reply) {
  if (choice_ == v1::WEIGHT_TRANSPORT_UNSPECIFIED && request.kind_case() != v1::DeviceRequest::kHello) {
    return absl::FailedPreconditionError("a session begins with hello");
  }
  switch (request.kind_case()) {
    case v1::DeviceRequest::kHello:
      return Offer(request.hello(), reply->mutable_offer());
    case v1::DeviceRequest::kJoin:
      reply->mutable_joined();
      return Join(request.join());
    case v1::DeviceRequest::kRead:
      return Read(request.read(), reply->mutable_granted());
    case v1::DeviceRequest::kProceed:
      return Proceed(reply->mutable_finished());
    case v1::DeviceRequest::kSkip:
    case v1::DeviceRequest::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a request of no known kind");
}

absl::Status DeviceSource::Offer(const v1::DeviceEndpoint& reader, v1::DeviceOffer* offer) {
  const std::shared_ptr<const InPlaceWeights> weights = store_.in_place();
  v1::DeviceEndpoint& source = *offer->mutable_source();
  source.set_host_id(HostId());
  if (weights != nullptr) {
    transport_ = weights->transport;
    source.set_gpu(transport_->gpu());
    source.set_nccl(transport_->has_nccl());
    source.set_cuda_ipc(weights->exported.ok());
    *offer->mutable_manifest() = weights->manifest;
  }
  const TransportChoice choice = ChooseTransport(source, reader);
  choice_ = choice.transport;
  offer->set_transport(choice.transport);
  offer->set_reason(choice.reason);
  if (weights != nullptr && !weights->exported.ok() && choice_ == v1::WEIGHT_TRANSPORT_HOST &&
      source.gpu() == reader.gpu()) {
    offer->set_reason(absl::StrCat(choice.reason, ": ", weights->exported.status().message()));
  }
  if (choice_ == v1::WEIGHT_TRANSPORT_CUDA_IPC) {
    offer->set_ipc_handle(weights->exported->handle);
    offer->set_ipc_offset(weights->exported->offset);
  }
  return absl::OkStatus();
}

absl::Status DeviceSource::Join(const v1::DeviceJoin& request) {
  group_ = nullptr;
  if (choice_ != v1::WEIGHT_TRANSPORT_NCCL) return absl::FailedPreconditionError("this session does not go by NCCL");
  if (request.size() < 2 || request.rank() < 0 || request.rank() >= request.size() - 1) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.rank(), " of ", request.size(), " makes no sense"));
  }
  const absl::Time deadline = absl::Now() + Timeout(request.timeout_ms());
  std::string id = request.unique_id();
  if (id.empty()) {
    MANTA_ASSIGN_OR_RETURN(id, transport_->NewGroupId());
  }
  v1::DeviceReply joining;
  joining.mutable_joining()->set_unique_id(id);
  MANTA_RETURN_IF_ERROR(conversation_.Send(joining));
  MANTA_ASSIGN_OR_RETURN(
      group_, transport_->Join(id, request.rank(), request.size(), deadline, [this] { return conversation_.Check(); }));
  group_size_ = request.size();
  return absl::OkStatus();
}

absl::Status DeviceSource::Read(const v1::DeviceRead& request, v1::DeviceGranted* granted) {
  loan_ = nullptr;
  boxes_.clear();
  const bool sends = choice_ == v1::WEIGHT_TRANSPORT_NCCL;
  if (choice_ == v1::WEIGHT_TRANSPORT_HOST) return absl::FailedPreconditionError("this session has no GPU transport");
  if (sends && group_ == nullptr) return absl::FailedPreconditionError("join a communicator before reading");
  if (sends && (request.direct_size() != request.boxes_size() || request.bucket_bytes() == 0 ||
                request.bucket_bytes() > kMaxBucketBytes)) {
    return absl::InvalidArgumentError("bucket_bytes or direct make no sense");
  }
  MANTA_ASSIGN_OR_RETURN(std::unique_ptr<WeightStore::Loan> loan, store_.Borrow(request.version()));
  const InPlaceWeights& weights = loan->weights();
  absl::flat_hash_map<std::string, const LocalSlice*> by_name;
  for (const LocalSlice& slice : weights.slices) by_name[slice.spec.name] = &slice;
  for (int i = 0; i < request.boxes_size(); ++i) {
    const v1::ParameterBox& asked = request.boxes(i);
    const auto found = by_name.find(asked.name());
    if (found == by_name.end()) return absl::NotFoundError(absl::StrCat("no parameter '", asked.name(), "' here"));
    const LocalSlice& slice = *found->second;
    PlacedBox box;
    box.whole = slice.spec.box();
    box.part = {{asked.lower().begin(), asked.lower().end()}, {asked.upper().begin(), asked.upper().end()}};
    // Only read from.
    box.data = const_cast<std::byte*>(static_cast<const std::byte*>(slice.data));
    box.width = SizeOf(slice.spec.dtype);
    box.direct = sends && request.direct(i);
    if (box.part.upper.size() != box.part.lower.size() || !box.whole.Contains(box.part) ||
        (box.direct && !IsContiguous(box.whole, box.part))) {
      return absl::InvalidArgumentError(absl::StrCat("a box of parameter '", asked.name(), "' is not one of ",
                                                     box.whole.ToString(), ", which is held here"));
    }
    boxes_.push_back(std::move(box));
  }
  bucket_bytes_ = request.bucket_bytes();
  want_checksums_ = request.want_checksums();
  deadline_ = absl::Now() + Timeout(request.timeout_ms());
  granted->set_version(weights.version);
  loan_ = std::move(loan);
  return absl::OkStatus();
}

absl::Status DeviceSource::SendBoxes() {
  std::array<std::byte*, 2> staging = {};
  if (const uint64_t bytes = StagingBytes(boxes_, bucket_bytes_); bytes > 0) {
    for (int slot = 0; slot < 2; ++slot) {
      MANTA_ASSIGN_OR_RETURN(staging[slot], group_->Staging(slot, bytes));
    }
  }
  return group_->Send(CutBuckets(boxes_, group_size_ - 1, bucket_bytes_, staging, Direction::kSend), deadline_,
                      [this] { return conversation_.Check(); });
}

absl::Status DeviceSource::Proceed(v1::DeviceFinished* finished) {
  if (loan_ == nullptr) return absl::FailedPreconditionError("nothing is granted, or no longer");
  if (choice_ == v1::WEIGHT_TRANSPORT_NCCL) {
    if (absl::Status status = SendBoxes(); !status.ok()) {
      group_ = nullptr;
      return status;
    }
  }
  if (want_checksums_) {
    for (const PlacedBox& box : boxes_) {
      MANTA_ASSIGN_OR_RETURN(const uint64_t checksum, BoxChecksum(*transport_, box, deadline_));
      finished->add_checksums(checksum);
    }
  }
  finished->set_valid(loan_->Return());
  loan_ = nullptr;
  return absl::OkStatus();
}

}  // namespace manta::comm

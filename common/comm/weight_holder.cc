#include "common/comm/weight_holder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/comm/hash64.h"
#include "common/comm/weight_manifest.h"
#include "common/rpc/status.h"

namespace manta::comm {
namespace {

constexpr absl::Duration kDescribeTimeout = absl::Seconds(10);

void SetDeadline(grpc::ClientContext& context, absl::Time deadline) {
  context.set_deadline(absl::ToChronoTime(deadline));
}

absl::Status Copy(const CopyFunction& copy, void* to, const void* from, size_t bytes) {
  if (copy) return copy(to, from, bytes);
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

// Writes a box, given its bytes row-major in `from` which holds `held`, to its destination.
absl::Status Scatter(const CopyFunction& copy, const Box& held, const void* from, const PlannedBox& box) {
  absl::Status status;
  CopyBox(held, from, box.destination->spec.box(), box.destination->data, box.box, SizeOf(box.destination->spec.dtype),
          [&](void* to, const void* source, size_t bytes) {
            if (status.ok()) status = Copy(copy, to, source, bytes);
          });
  return status;
}

absl::Status Damaged(const std::string& name) {
  return absl::DataLossError(absl::StrCat("the bytes of parameter '", name,
                                          "' do not have the checksum that they had "
                                          "when they were published"));
}

}  // namespace

struct WeightHolder::ReleaseCall {
  grpc::ClientContext context;
  v1::ReleaseWeightsRequest request;
  v1::ReleaseWeightsReply reply;
  absl::Notification done;
};

WeightHolder::WeightHolder(std::string address, const ChannelOpener& open_channel)
    : address_(std::move(address)), open_channel_(open_channel) {}

WeightHolder::~WeightHolder() {
  if (mapping_ != nullptr) munmap(const_cast<std::byte*>(mapping_), manifest_.shared_memory_bytes());
  StartRelease();
  // Waited for, so that the last word on a connection is never spoken on one of its own threads.
  if (release_ != nullptr) release_->done.WaitForNotification();
}

void WeightHolder::StartRelease() {
  if (release_ != nullptr || manifest_.shared_memory().empty()) return;
  release_ = std::make_unique<ReleaseCall>();
  SetDeadline(release_->context, absl::Now() + absl::Seconds(2));
  release_->request.set_version(manifest_.version());
  release_->request.set_shared_memory(manifest_.shared_memory());
  // A holder that is gone has nothing to release.
  stub_->async()->Release(&release_->context, &release_->request, &release_->reply,
                          [call = release_.get()](const grpc::Status&) { call->done.Notify(); });
}

void WeightHolder::Describe(uint64_t version, bool shared_memory, bool checksums, absl::Time deadline) {
  status_ = DescribeOrError(version, shared_memory, checksums, deadline);
}

absl::Status WeightHolder::DescribeOrError(uint64_t version, bool shared_memory, bool checksums, absl::Time deadline) {
  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, open_channel_(address_));
  stub_ = v1::WeightSource::NewStub(channel);
  grpc::ClientContext context;
  SetDeadline(context, std::min(deadline, absl::Now() + kDescribeTimeout));
  v1::DescribeWeightsRequest request;
  request.set_version(version);
  if (shared_memory) request.set_reader_host_id(HostId());
  request.set_want_checksums(checksums);
  MANTA_RETURN_IF_ERROR(rpc::FromGrpc(stub_->Describe(&context, request, &manifest_)));
  const bool mapped = !manifest_.shared_memory().empty();
  MANTA_ASSIGN_OR_RETURN(slices_, ReadManifest(manifest_, mapped ? manifest_.shared_memory_bytes() : UINT64_MAX));
  if (version != 0 && manifest_.version() != version) {
    return absl::InternalError(
        absl::StrCat("it was asked for version ", version, " and described ", manifest_.version()));
  }
  if (mapped) Map();  // where that fails the bytes come by Fetch
  return absl::OkStatus();
}

bool WeightHolder::Map() {
  const Fd fd(open(manifest_.shared_memory().c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  const uint64_t bytes = manifest_.shared_memory_bytes();
  if (!fd || bytes < SegmentHeader::kBytes || fstat(fd.get(), &info) != 0 ||
      static_cast<uint64_t>(info.st_size) < bytes) {
    return false;
  }
  void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapping == MAP_FAILED) return false;
  SegmentHeader header;
  std::memcpy(&header, mapping, sizeof(header));
  if (header.magic != SegmentHeader::kMagic || header.version != manifest_.version()) {
    munmap(mapping, bytes);
    return false;
  }
  mapping_ = static_cast<const std::byte*>(mapping);
  return true;
}

void WeightHolder::Transfer(const std::vector<PlannedBox>& boxes, const ReceiveOptions& options, absl::Time deadline) {
  status_ = mapping_ != nullptr ? CopyFromMapping(boxes, options) : Fetch(boxes, options, deadline);
}

absl::Status WeightHolder::CopyFromMapping(const std::vector<PlannedBox>& boxes, const ReceiveOptions& options) {
  std::vector<bool> verified(slices_.size(), false);
  uint64_t bytes = 0;
  for (const PlannedBox& box : boxes) {
    const v1::ParameterSlice& entry = manifest_.slices(box.source_slice);
    const std::byte* from = mapping_ + entry.offset();
    MANTA_RETURN_IF_ERROR(Scatter(options.copy, slices_[box.source_slice].box(), from, box));
    bytes += static_cast<uint64_t>(box.box.Elements()) * SizeOf(entry.dtype());
    if (!options.verify || entry.checksum() == 0 || verified[box.source_slice]) continue;
    // Where the slice has arrived as it is, what arrived is looked at; otherwise what it was taken from.
    const SliceSpec& destination = box.destination->spec;
    const bool same = !options.copy && box.box == slices_[box.source_slice].box() && box.box == destination.box();
    if (Hash64::Of(same ? box.destination->data : from, entry.bytes()) != entry.checksum())
      return Damaged(entry.name());
    verified[box.source_slice] = true;
  }
  SegmentHeader header;
  std::memcpy(&header, mapping_, sizeof(header));
  if (header.version != manifest_.version()) return absl::DataLossError("its memory was reused while it was read");
  shared_memory_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status WeightHolder::Fetch(const std::vector<PlannedBox>& boxes, const ReceiveOptions& options,
                                 absl::Time deadline) {
  v1::FetchWeightsRequest request;
  request.set_version(manifest_.version());
  request.set_want_checksums(options.verify);
  std::vector<const PlannedBox*> asked;
  for (const PlannedBox& box : boxes) {
    if (box.box.Elements() == 0) continue;
    v1::ParameterBox& wanted = *request.add_boxes();
    wanted.set_name(slices_[box.source_slice].name);
    wanted.mutable_lower()->Add(box.box.lower.begin(), box.box.lower.end());
    wanted.mutable_upper()->Add(box.box.upper.begin(), box.box.upper.end());
    asked.push_back(&box);
  }
  if (asked.empty()) return absl::OkStatus();
  grpc::ClientContext context;
  SetDeadline(context, deadline);
  auto reader = stub_->Fetch(&context, request);
  const auto give_up = [&](absl::Status status) {
    context.TryCancel();
    (void)reader->Finish();
    return status;
  };
  size_t current = 0;
  uint64_t done = 0;  // bytes of the current box
  Hash64 hash;
  std::string whole;  // of a box that does not lie in one piece at its destination
  v1::WeightChunk chunk;
  while (reader->Read(&chunk)) {
    if (current == asked.size()) return give_up(absl::InternalError("it sent more than it was asked for"));
    const PlannedBox& box = *asked[current];
    const DestinationSlice& to = *box.destination;
    const uint64_t total = static_cast<uint64_t>(box.box.Elements()) * SizeOf(to.spec.dtype);
    const std::string& data = chunk.data();
    if (chunk.box() != static_cast<int>(current) || chunk.offset() != done || data.empty() ||
        data.size() > total - done) {
      return give_up(absl::InternalError("it sent other bytes than it was asked for"));
    }
    const bool direct = box.box == to.spec.box();
    absl::Status status;
    if (direct) status = Copy(options.copy, static_cast<std::byte*>(to.data) + done, data.data(), data.size());
    if (!direct) whole += data;
    if (options.verify) hash.Update(data.data(), data.size());
    done += data.size();
    if (done == total) {
      if (!direct) status = Scatter(options.copy, box.box, whole.data(), box);
      const v1::ParameterSlice& entry = manifest_.slices(box.source_slice);
      const bool all_of_it = box.box == slices_[box.source_slice].box() && entry.checksum() != 0;
      if (options.verify && hash.Finish() != (all_of_it ? entry.checksum() : chunk.checksum())) {
        status = Damaged(entry.name());
      }
      hash = Hash64();
      whole.clear();
      done = 0;
      ++current;
    }
    if (!status.ok()) return give_up(status);
  }
  MANTA_RETURN_IF_ERROR(rpc::FromGrpc(reader->Finish()));
  if (current != asked.size()) return absl::DataLossError("it ended before it had sent everything");
  return absl::OkStatus();
}

}  // namespace manta::comm

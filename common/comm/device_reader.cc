#include "common/comm/device_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/comm/box_checksum.h"
#include "common/comm/transport_choice.h"
#include "common/comm/weight_manifest.h"

namespace manta::comm {

struct DeviceReader::Source {
  std::unique_ptr<DeviceLink> link;
  v1::WeightTransport transport = v1::WEIGHT_TRANSPORT_HOST;
  std::string reason;
  ShardTable slices;
  std::vector<uint64_t> offsets;      // of each slice from `base`
  std::shared_ptr<std::byte> mapped;  // CUDA IPC: keeps the mapping
  const std::byte* base = nullptr;
  // Of the plan being carried out: what comes from here, and where it goes.
  std::vector<Transfer> plan;
  std::vector<PlacedBox> boxes;
};

DeviceReader::DeviceReader(std::shared_ptr<DeviceTransport> transport, ChannelOpener open_channel,
                           DeviceReaderOptions options)
    : transport_(std::move(transport)), open_channel_(std::move(open_channel)), options_(options) {}

DeviceReader::~DeviceReader() = default;

void DeviceReader::Drop() {
  group_ = nullptr;
  group_members_.clear();
  sources_.clear();
}

absl::StatusOr<ReceiveReport> DeviceReader::Receive(const v1::WeightSources& sources,
                                                    absl::Span<const DestinationSlice> destinations,
                                                    const ReceiveOptions& options, const Exclusively& exclusively) {
  written_ = false;
  const absl::Time start = absl::Now();
  ReceiveReport report;
  const auto receive = [&]() -> absl::Status {
    MANTA_RETURN_IF_ERROR(ConnectAll(sources));
    MANTA_RETURN_IF_ERROR(Plan(destinations));
    MANTA_RETURN_IF_ERROR(JoinGroup());
    MANTA_ASSIGN_OR_RETURN(report.version, AskToRead(sources.version(), options, destinations));
    MANTA_RETURN_IF_ERROR(exclusively(report.version, [&] { return Move(destinations, options.verify); }));
    written_ = false;
    // Those that nothing came from need not keep the version either. One that does not hear it is found out next time.
    v1::DeviceRequest skip;
    skip.mutable_skip()->set_version(report.version);
    for (const auto& source : sources_) {
      if (source->plan.empty()) (void)source->link->Send(skip);
    }
    return absl::OkStatus();
  };
  if (absl::Status status = receive(); !status.ok()) {
    Drop();
    return status;
  }
  for (const DestinationSlice& slice : destinations) report.bytes += slice.spec.bytes();
  std::vector<std::string> names;
  for (const auto transport : {v1::WEIGHT_TRANSPORT_CUDA_IPC, v1::WEIGHT_TRANSPORT_NCCL}) {
    if (!Used(transport).empty()) names.push_back(Name(transport));
  }
  report.device = true;
  report.transport = absl::StrJoin(names, "+");
  report.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return report;
}

absl::Status DeviceReader::ConnectAll(const v1::WeightSources& sources) {
  if (sources.addresses().empty()) return absl::InvalidArgumentError("no address of a weight source is given");
  // A session with a holder that is not among the sources any more, or has ended, is of no use.
  const auto stale = [&](const std::unique_ptr<Source>& source) {
    return !source->link->Check().ok() || std::find(sources.addresses().begin(), sources.addresses().end(),
                                                    source->link->address()) == sources.addresses().end();
  };
  sources_.erase(std::remove_if(sources_.begin(), sources_.end(), stale), sources_.end());
  std::vector<Source*> fresh;
  for (const std::string& address : sources.addresses()) {
    const bool known = std::any_of(sources_.begin(), sources_.end(),
                                   [&](const auto& source) { return source->link->address() == address; });
    if (known) continue;
    MANTA_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, open_channel_(address));
    sources_.push_back(std::make_unique<Source>());
    sources_.back()->link = std::make_unique<DeviceLink>(address, channel);
    fresh.push_back(sources_.back().get());
  }
  v1::DeviceRequest request;
  v1::DeviceEndpoint& reader = *request.mutable_hello();
  reader.set_host_id(HostId());
  reader.set_gpu(transport_->gpu());
  reader.set_cuda_ipc(true);
  reader.set_nccl(transport_->has_nccl());
  const absl::Time deadline = absl::Now() + options_.hello_timeout;
  for (Source* source : fresh) {
    if (!source->link->Send(request).ok()) continue;  // Receive says why
  }
  // One that is gone takes no part; where the others have everything that is no loss.
  std::string failures;
  for (Source* source : fresh) {
    absl::StatusOr<v1::DeviceReply> reply = source->link->Receive(v1::DeviceReply::kOffer, deadline);
    absl::Status status = reply.status();
    if (status.ok()) status = ReadOffer(*source, reply->offer());
    if (status.ok()) continue;
    absl::StrAppend(&failures, failures.empty() ? "" : "; ", status.message());
    std::erase_if(sources_, [&](const auto& other) { return other.get() == source; });
  }
  if (sources_.empty()) return absl::UnavailableError(failures);
  return absl::OkStatus();
}

absl::Status DeviceReader::ReadOffer(Source& source, const v1::DeviceOffer& offer) {
  source.transport = offer.transport();
  source.reason = offer.reason();
  if (source.transport == v1::WEIGHT_TRANSPORT_HOST) return absl::OkStatus();
  MANTA_ASSIGN_OR_RETURN(source.slices, ReadManifest(offer.manifest(), UINT64_MAX));
  for (const v1::ParameterSlice& slice : offer.manifest().slices()) source.offsets.push_back(slice.offset());
  if (source.transport != v1::WEIGHT_TRANSPORT_CUDA_IPC) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<std::byte>> mapped = transport_->OpenMemory(offer.ipc_handle());
  if (!mapped.ok()) {
    source.transport = v1::WEIGHT_TRANSPORT_HOST;
    source.reason = std::string(mapped.status().message());
    return absl::OkStatus();
  }
  source.mapped = *std::move(mapped);
  source.base = source.mapped.get() + offer.ipc_offset();
  return absl::OkStatus();
}

// From the same GPU first; what does not lie there by NCCL.
absl::Status DeviceReader::Plan(absl::Span<const DestinationSlice> destinations) {
  ShardTable wanted;
  for (const DestinationSlice& slice : destinations) wanted.push_back(slice.spec);
  absl::StatusOr<std::vector<Transfer>> plan = absl::NotFoundError("");
  for (const bool by_nccl : {false, true}) {
    std::vector<ShardTable> tables;
    for (const auto& source : sources_) {
      const bool takes_part = source->transport == v1::WEIGHT_TRANSPORT_CUDA_IPC ||
                              (by_nccl && source->transport == v1::WEIGHT_TRANSPORT_NCCL);
      tables.push_back(takes_part ? source->slices : ShardTable());
    }
    plan = PlanTransfers(tables, {wanted});
    if (plan.ok()) break;
  }
  if (absl::IsNotFound(plan.status())) {
    std::vector<std::string> reasons;
    for (const auto& source : sources_) {
      if (!source->reason.empty()) reasons.push_back(source->reason);
    }
    if (reasons.empty()) reasons.emplace_back(plan.status().message());
    return absl::UnimplementedError(absl::StrJoin(reasons, "; "));
  }
  MANTA_RETURN_IF_ERROR(plan.status());
  for (const auto& source : sources_) {
    source->plan.clear();
    source->boxes.clear();
  }
  for (const Transfer& transfer : *plan) {
    Source& source = *sources_[transfer.source_rank];
    const DestinationSlice& destination = destinations[transfer.destination_slice];
    PlacedBox box;
    box.whole = destination.spec.box();
    box.data = static_cast<std::byte*>(destination.data);
    box.part = transfer.box;
    box.width = SizeOf(destination.spec.dtype);
    box.direct = static_cast<uint64_t>(box.part.Elements()) * box.width >= options_.direct_bytes &&
                 IsContiguous(box.whole, box.part) &&
                 IsContiguous(source.slices[transfer.source_slice].box(), box.part);
    source.boxes.push_back(std::move(box));
    source.plan.push_back(transfer);
  }
  return absl::OkStatus();
}

std::vector<DeviceReader::Source*> DeviceReader::Used(v1::WeightTransport transport) const {
  std::vector<Source*> used;
  for (const auto& source : sources_) {
    if (source->transport == transport && !source->plan.empty()) used.push_back(source.get());
  }
  return used;
}

absl::Status DeviceReader::CheckAll() const {
  for (const auto& source : sources_) {
    if (!source->plan.empty()) MANTA_RETURN_IF_ERROR(source->link->Check());
  }
  return absl::OkStatus();
}

absl::Status DeviceReader::JoinGroup() {
  const std::vector<Source*> members = Used(v1::WEIGHT_TRANSPORT_NCCL);
  std::vector<std::string> addresses;
  for (const Source* member : members) addresses.push_back(member->link->address());
  if (addresses == group_members_ && (group_ != nullptr || members.empty())) return absl::OkStatus();
  group_ = nullptr;
  group_members_.clear();
  const absl::Time deadline = absl::Now() + options_.join_timeout;
  v1::DeviceRequest request;
  v1::DeviceJoin& join = *request.mutable_join();
  join.set_size(static_cast<int>(members.size()) + 1);
  join.set_timeout_ms(absl::ToInt64Milliseconds(options_.join_timeout));
  // The first source makes the id, the others are given it.
  for (size_t rank = 0; rank < members.size(); ++rank) {
    join.set_rank(static_cast<int>(rank));
    MANTA_RETURN_IF_ERROR(members[rank]->link->Send(request));
    MANTA_ASSIGN_OR_RETURN(const v1::DeviceReply reply,
                           members[rank]->link->Receive(v1::DeviceReply::kJoining, deadline));
    join.set_unique_id(reply.joining().unique_id());
  }
  absl::StatusOr<std::unique_ptr<PeerGroup>> group = transport_->Join(
      join.unique_id(), static_cast<int>(members.size()), join.size(), deadline, [this] { return CheckAll(); });
  // A source that could not join says better why than the wait for it does.
  for (Source* member : members) {
    const absl::Time patience = group.ok() ? deadline : absl::Now() + absl::Seconds(1);
    const absl::Status joined = member->link->Receive(v1::DeviceReply::kJoined, patience).status();
    if (!joined.ok() && !absl::IsDeadlineExceeded(joined)) return joined;
  }
  MANTA_RETURN_IF_ERROR(group.status());
  group_ = *std::move(group);
  group_members_ = std::move(addresses);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> DeviceReader::AskToRead(uint64_t version, const ReceiveOptions& options,
                                                 absl::Span<const DestinationSlice> destinations) {
  const absl::Duration transfer = std::min(options_.transfer_timeout, options.timeout);
  deadline_ = absl::Now() + transfer;
  for (const auto& source : sources_) {
    if (source->plan.empty()) continue;
    v1::DeviceRequest request;
    v1::DeviceRead& read = *request.mutable_read();
    read.set_version(version);
    for (size_t i = 0; i < source->plan.size(); ++i) {
      const Transfer& transfer_of = source->plan[i];
      v1::ParameterBox& box = *read.add_boxes();
      box.set_name(destinations[transfer_of.destination_slice].spec.name);
      box.mutable_lower()->Add(transfer_of.box.lower.begin(), transfer_of.box.lower.end());
      box.mutable_upper()->Add(transfer_of.box.upper.begin(), transfer_of.box.upper.end());
      read.add_direct(source->boxes[i].direct);
    }
    read.set_bucket_bytes(options_.bucket_bytes);
    read.set_want_checksums(options.verify);
    read.set_timeout_ms(absl::ToInt64Milliseconds(transfer));
    MANTA_RETURN_IF_ERROR(source->link->Send(request));
    MANTA_ASSIGN_OR_RETURN(const v1::DeviceReply reply, source->link->Receive(v1::DeviceReply::kGranted, deadline_));
    if (version == 0) version = reply.granted().version();  // the others must lend the same
    if (reply.granted().version() != version) {
      return absl::InternalError(absl::StrCat("weight source ", source->link->address(), " lends version ",
                                              reply.granted().version(), " where ", version, " was asked for"));
    }
    if (version < options.min_version) {
      return absl::FailedPreconditionError(absl::StrCat("weight version ", version, " is offered, ",
                                                        options.min_version,
                                                        " is here already: versions never go back"));
    }
  }
  return version;
}

absl::Status DeviceReader::ReceiveByNccl(const std::vector<Source*>& sources) {
  v1::DeviceRequest proceed;
  proceed.mutable_proceed();
  std::vector<Bucket> buckets;
  std::vector<uint64_t> staging_bytes;
  uint64_t staging_total = 0;
  for (Source* source : sources) {
    staging_bytes.push_back(StagingBytes(source->boxes, options_.bucket_bytes));
    staging_total += staging_bytes.back();
  }
  std::array<std::byte*, 2> staging = {};
  for (int slot = 0; slot < 2 && staging_total > 0; ++slot) {
    MANTA_ASSIGN_OR_RETURN(staging[slot], group_->Staging(slot, staging_total));
  }
  for (size_t rank = 0; rank < sources.size(); ++rank) {
    const std::vector<Bucket> own =
        CutBuckets(sources[rank]->boxes, static_cast<int>(rank), options_.bucket_bytes, staging, Direction::kReceive);
    if (buckets.size() < own.size()) buckets.resize(own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      buckets[i].copies.insert(buckets[i].copies.end(), own[i].copies.begin(), own[i].copies.end());
      buckets[i].messages.insert(buckets[i].messages.end(), own[i].messages.begin(), own[i].messages.end());
    }
    for (std::byte*& slot : staging) {
      if (slot != nullptr) slot += staging_bytes[rank];
    }
  }
  for (Source* source : sources) MANTA_RETURN_IF_ERROR(source->link->Send(proceed));
  written_ = true;
  return group_->Receive(buckets, deadline_, [this] { return CheckAll(); });
}

absl::Status DeviceReader::Move(absl::Span<const DestinationSlice> destinations, bool verify) {
  MANTA_RETURN_IF_ERROR(CheckAll());
  const std::vector<Source*> by_ipc = Used(v1::WEIGHT_TRANSPORT_CUDA_IPC), by_nccl = Used(v1::WEIGHT_TRANSPORT_NCCL);
  v1::DeviceRequest proceed;
  proceed.mutable_proceed();
  if (!by_nccl.empty()) MANTA_RETURN_IF_ERROR(ReceiveByNccl(by_nccl));
  for (Source* source : by_ipc) {
    std::vector<CopyRun> copies;
    for (size_t i = 0; i < source->plan.size(); ++i) {
      const Transfer& transfer = source->plan[i];
      const PlacedBox& to = source->boxes[i];
      AppendCopies(source->slices[transfer.source_slice].box(), source->base + source->offsets[transfer.source_slice],
                   to.whole, to.data, to.part, to.width, &copies);
    }
    written_ = true;
    MANTA_RETURN_IF_ERROR(transport_->Copy(copies, deadline_));
    MANTA_RETURN_IF_ERROR(source->link->Send(proceed));
  }
  for (const auto& source : sources_) {
    if (source->plan.empty()) continue;
    MANTA_ASSIGN_OR_RETURN(const v1::DeviceReply reply, source->link->Receive(v1::DeviceReply::kFinished, deadline_));
    const v1::DeviceFinished& finished = reply.finished();
    if (!finished.valid()) {
      return absl::DataLossError(
          absl::StrCat("weight source ", source->link->address(), " changed its weights while they were read"));
    }
    if (!verify) continue;
    for (size_t i = 0; i < source->boxes.size(); ++i) {
      MANTA_ASSIGN_OR_RETURN(const uint64_t checksum, BoxChecksum(*transport_, source->boxes[i], deadline_));
      if (static_cast<int>(i) < finished.checksums_size() && checksum == finished.checksums(static_cast<int>(i))) {
        continue;
      }
      return absl::DataLossError(
          absl::StrCat("the bytes of parameter '", destinations[source->plan[i].destination_slice].spec.name,
                       "' do not have the checksum that they have at ", source->link->address()));
    }
  }
  return absl::OkStatus();
}

}  // namespace manta::comm

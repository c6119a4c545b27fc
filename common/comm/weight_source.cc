#include "common/comm/weight_source.h"

#include <algorithm>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/comm/hash64.h"
#include "common/rpc/status.h"

namespace manta::comm {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr int kMaxCopying = 64;

// A box to send: where its bytes are.
struct Part {
  int slice;
  Box box;
};

absl::StatusOr<std::vector<Part>> FindParts(const WeightVersion& version, const v1::FetchWeightsRequest& request) {
  absl::flat_hash_map<std::string, int> by_name;
  for (size_t i = 0; i < version.slices.size(); ++i) by_name[version.slices[i].name] = static_cast<int>(i);
  std::vector<Part> parts;
  for (const v1::ParameterBox& asked : request.boxes()) {
    const Box box{{asked.lower().begin(), asked.lower().end()}, {asked.upper().begin(), asked.upper().end()}};
    auto found = by_name.find(asked.name());
    if (found == by_name.end()) return absl::NotFoundError(absl::StrCat("no parameter '", asked.name(), "' here"));
    const Box held = version.slices[found->second].box();
    if (box.upper.size() != box.lower.size() || !held.Contains(box)) {
      return absl::InvalidArgumentError(absl::StrCat("a box of parameter '", asked.name(), "' lies outside ",
                                                     held.ToString(), ", which is held here"));
    }
    parts.push_back({found->second, box});
  }
  return parts;
}

// Streams the parts, one chunk at a time. Deletes itself.
class FetchReactor final : public grpc::ServerWriteReactor<v1::WeightChunk> {
 public:
  FetchReactor(std::shared_ptr<const WeightVersion> version, std::vector<Part> parts, bool checksums)
      : version_(std::move(version)), parts_(std::move(parts)), checksums_(checksums) {
    Next();
  }
  explicit FetchReactor(const absl::Status& error) { Finish(rpc::ToGrpc(error)); }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);  // the reader is gone
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (part_ == parts_.size()) return Finish(grpc::Status::OK);
    const Part& part = parts_[part_];
    const SliceSpec& slice = version_->slices[part.slice];
    const uint64_t total = static_cast<uint64_t>(part.box.Elements()) * SizeOf(slice.dtype);
    const size_t n = std::min<uint64_t>(kChunkBytes, total - offset_);
    chunk_.Clear();
    chunk_.set_box(static_cast<int>(part_));
    chunk_.set_offset(offset_);
    Gather(part, slice, n, *chunk_.mutable_data());
    if (checksums_) hash_.Update(chunk_.data().data(), n);
    offset_ += n;
    if (offset_ == total) {
      if (checksums_) chunk_.set_checksum(hash_.Finish());
      hash_ = Hash64();
      offset_ = 0;
      ++part_;
    }
    StartWrite(&chunk_);
  }

  // Bytes [offset_, offset_ + n) of the box.
  void Gather(const Part& part, const SliceSpec& slice, size_t n, std::string& to) {
    const uint64_t width = SizeOf(slice.dtype);
    const std::byte* from = version_->SliceData(part.slice);
    const Box held = slice.box();
    if (offset_ == 0) {
      runs_.clear();
      ForEachRun(held, part.box, [&](int64_t at, int64_t in_part, int64_t elements) {
        runs_.push_back({static_cast<uint64_t>(at) * width, static_cast<uint64_t>(in_part) * width,
                         static_cast<uint64_t>(elements) * width});
      });
      run_ = 0;
    }
    to.resize(n);
    for (uint64_t done = 0; done < n;) {
      const Run& run = runs_[run_];
      const uint64_t within = offset_ + done - run.in_part;
      const uint64_t take = std::min(n - done, run.bytes - within);
      std::memcpy(to.data() + done, from + run.at + within, take);
      done += take;
      if (within + take == run.bytes) ++run_;
    }
  }

  struct Run {
    uint64_t at, in_part, bytes;
  };

  const std::shared_ptr<const WeightVersion> version_;
  const std::vector<Part> parts_;
  const bool checksums_ = false;
  size_t part_ = 0;
  uint64_t offset_ = 0;  // in the part
  std::vector<Run> runs_;
  size_t run_ = 0;
  Hash64 hash_;
  v1::WeightChunk chunk_;
};

}  // namespace

WeightSourceService::~WeightSourceService() {
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return copying_ == 0; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&none));
}

absl::Status WeightSourceService::DoDescribe(const v1::DescribeWeightsRequest& request, v1::WeightManifest* reply) {
  const bool same_host = request.reader_host_id() == HostId();
  MANTA_ASSIGN_OR_RETURN(const auto version,
                         same_host ? store_->GetWithLease(request.version()) : store_->Get(request.version()));
  *reply = version->manifest;
  if (same_host) {
    reply->set_shared_memory(version->segment->path());
    reply->set_shared_memory_bytes(version->segment->bytes());
  }
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* WeightSourceService::Describe(grpc::CallbackServerContext* context,
                                                        const v1::DescribeWeightsRequest* request,
                                                        v1::WeightManifest* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!store_->OnlyInPlace(request->version())) {
    reactor->Finish(rpc::ToGrpc(DoDescribe(*request, reply)));
    return reactor;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (copying_ >= kMaxCopying) {
      reactor->Finish(rpc::ToGrpc(absl::ResourceExhaustedError("too many readers wait for weights from the GPU")));
      return reactor;
    }
    ++copying_;
  }
  std::thread([=, this] {
    absl::Status status = store_->KeepOnHost(request->version());
    if (status.ok()) status = DoDescribe(*request, reply);
    reactor->Finish(rpc::ToGrpc(status));
    absl::MutexLock lock(&mutex_);
    --copying_;
  }).detach();
  return reactor;
}

grpc::ServerWriteReactor<v1::WeightChunk>* WeightSourceService::Fetch(grpc::CallbackServerContext*,
                                                                      const v1::FetchWeightsRequest* request) {
  auto version = store_->Get(request->version());
  if (!version.ok()) return new FetchReactor(version.status());
  auto parts = FindParts(**version, *request);
  if (!parts.ok()) return new FetchReactor(parts.status());
  return new FetchReactor(*std::move(version), *std::move(parts), request->want_checksums());
}

grpc::ServerUnaryReactor* WeightSourceService::Release(grpc::CallbackServerContext* context,
                                                       const v1::ReleaseWeightsRequest* request,
                                                       v1::ReleaseWeightsReply*) {
  store_->ReleaseLease(request->version(), request->shared_memory());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace manta::comm

// WeightStore's versions that lie in place: lent to readers on the GPU transports until they are changed.
#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/comm/weight_manifest.h"
#include "common/comm/weight_store.h"

namespace manta::comm {

absl::Status WeightStore::PublishInPlace(uint64_t version, absl::Span<const LocalSlice> slices,
                                         std::shared_ptr<DeviceTransport> transport, CopyFunction copy,
                                         int num_readers) {
  MANTA_RETURN_IF_ERROR(CheckVersion(version));
  if (slices.empty()) return absl::InvalidArgumentError("there are no weights to publish");
  auto made = std::make_shared<InPlaceWeights>();
  made->version = version;
  made->slices.assign(slices.begin(), slices.end());
  made->transport = std::move(transport);
  made->manifest.set_version(version);
  made->manifest.set_rank(options_.rank);
  MANTA_RETURN_IF_ERROR(DescribeSlices(slices, &made->manifest));
  const std::byte* end = nullptr;
  for (const LocalSlice& slice : slices) {
    const auto* data = static_cast<const std::byte*>(slice.data);
    if (made->base == nullptr || std::less<>()(data, made->base)) made->base = data;
    if (end == nullptr || std::less<>()(end, data + slice.spec.bytes())) end = data + slice.spec.bytes();
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    made->manifest.mutable_slices(static_cast<int>(i))
        ->set_offset(static_cast<uint64_t>(static_cast<const std::byte*>(slices[i].data) - made->base));
  }
  const std::shared_ptr<const InPlaceWeights> before = in_place();
  const bool same_memory = before != nullptr && before->base == made->base && before->transport == made->transport;
  made->exported = same_memory ? before->exported
                               : made->transport->ExportMemory(made->base, static_cast<uint64_t>(end - made->base));
  // Where the weights were not changed in between, who still reads the version before is told that it is gone.
  absl::MutexLock lock(&mutex_);
  newest_ = version;
  in_place_ = std::move(made);
  in_place_copy_ = std::move(copy);
  in_place_state_ = InPlace::kLent;
  expected_readers_ = num_readers;
  completed_readers_ = 0;
  loans_ = 0;
  return absl::OkStatus();
}

std::shared_ptr<const InPlaceWeights> WeightStore::in_place() const {
  absl::MutexLock lock(&mutex_);
  return in_place_;
}

absl::StatusOr<std::unique_ptr<WeightStore::Loan>> WeightStore::Borrow(uint64_t version) {
  absl::MutexLock lock(&mutex_);
  if (in_place_ == nullptr || (version != 0 && version != in_place_->version)) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", options_.rank, " does not hold weight version ", version,
                                                      " on its GPU; its newest is ", newest_));
  }
  if (in_place_state_ != InPlace::kLent) {
    return absl::AbortedError(
        absl::StrCat("rank ", options_.rank, " is replacing weight version ", newest_, ": ask again"));
  }
  ++loans_;
  return std::unique_ptr<Loan>(new Loan(this, in_place_));
}

WeightStore::Loan::~Loan() {
  if (!returned_) store_->EndLoan(weights_->version, /*completed=*/false);
}

bool WeightStore::Loan::Return() {
  MANTA_CHECK(!returned_);
  returned_ = true;
  return store_->EndLoan(weights_->version, /*completed=*/true);
}

bool WeightStore::EndLoan(uint64_t version, bool completed) {
  absl::MutexLock lock(&mutex_);
  const bool valid =
      in_place_ != nullptr && in_place_->version == version && in_place_state_ != InPlace::kNone && loans_ > 0;
  if (!valid) return false;
  --loans_;
  completed_readers_ += completed;
  return true;
}

void WeightStore::CountReader(uint64_t version) {
  absl::MutexLock lock(&mutex_);
  if (in_place_ != nullptr && in_place_->version == version) ++completed_readers_;
}

bool WeightStore::Holds(uint64_t version) const {
  return std::any_of(versions_.begin(), versions_.end(),
                     [&](const auto& held) { return held->manifest.version() == version; });
}

absl::Status WeightStore::BeginChange() {
  std::shared_ptr<const InPlaceWeights> weights;
  CopyFunction copy;
  bool wanted = false;
  {
    const auto nobody_reads = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return loans_ == 0; };
    absl::MutexLock copying(&copying_);  // a copy in progress reads too
    absl::MutexLock lock(&mutex_);
    if (in_place_state_ != InPlace::kLent) return absl::OkStatus();
    in_place_state_ = InPlace::kClosing;  // nobody else borrows
    mutex_.AwaitWithTimeout(absl::Condition(&nobody_reads), options_.max_borrow);
    // Whoever still reads is told so when it returns what it borrowed, and takes what it has read for nothing.
    const bool everyone = expected_readers_ > 0 && completed_readers_ >= expected_readers_;
    wanted = !everyone && !Holds(in_place_->version);
    weights = in_place_;
    copy = in_place_copy_;
    loans_ = 0;
    in_place_state_ = InPlace::kNone;
  }
  if (!wanted) return absl::OkStatus();
  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<WeightVersion> kept, Copy(weights->version, weights->slices, copy));
  absl::MutexLock lock(&mutex_);
  versions_.push_back(std::move(kept));
  while (versions_.size() > static_cast<size_t>(options_.max_versions)) versions_.pop_front();
  return absl::OkStatus();
}

bool WeightStore::OnlyInPlace(uint64_t version) const {
  absl::MutexLock lock(&mutex_);
  const uint64_t wanted = version == 0 ? newest_ : version;
  return in_place_state_ == InPlace::kLent && in_place_->version == wanted && !Holds(wanted);
}

absl::Status WeightStore::KeepOnHost(uint64_t version) {
  absl::MutexLock copying(&copying_);
  if (!OnlyInPlace(version))
    return absl::OkStatus();  // another reader's copy came first, or Get will say what is wrong
  std::shared_ptr<const InPlaceWeights> weights;
  CopyFunction copy;
  {
    absl::MutexLock lock(&mutex_);
    weights = in_place_;
    copy = in_place_copy_;
  }
  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<WeightVersion> kept, Copy(weights->version, weights->slices, copy));
  absl::MutexLock lock(&mutex_);
  versions_.push_back(std::move(kept));
  while (versions_.size() > static_cast<size_t>(options_.max_versions)) versions_.pop_front();
  return absl::OkStatus();
}

}  // namespace manta::comm

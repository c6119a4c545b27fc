#include "common/rpc/method_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"

namespace manta::rpc {
namespace {

constexpr size_t kMaxBuckets = 10000;

}  // namespace

absl::StatusOr<std::shared_ptr<MethodPolicy>> MethodPolicy::ForServices(const std::vector<std::string>& services) {
  auto policy = std::make_shared<MethodPolicy>();
  for (const std::string& name : services) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    if (service == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("refusing to serve ", name, ": its proto is not known here"));
    }
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* descriptor = service->method(i);
      const v1::Access& access = descriptor->options().GetExtension(v1::access);
      auto method = std::make_unique<Method>();
      method->path = absl::StrCat("/", name, "/", descriptor->name());
      for (const int role : access.roles()) {
        if (role != v1::ROLE_UNSPECIFIED) method->roles |= RoleBit(static_cast<v1::Role>(role));
      }
      method->roles &= kEveryRole;
      if (method->roles == 0) {
        return absl::FailedPreconditionError(
            absl::StrCat("refusing to serve ", method->path, ": its proto does not say who may call it (access)"));
      }
      method->audit = access.audit() || method->roles == RoleBit(v1::ROLE_ADMIN);
      method->max_per_second = access.max_per_second();
      method->idempotent = descriptor->options().GetExtension(v1::idempotent);
      method->client_streaming = descriptor->client_streaming();
      method->server_streaming = descriptor->server_streaming();
      std::string path = method->path;
      policy->methods_.emplace(std::move(path), std::move(method));
    }
  }
  return policy;
}

const MethodPolicy::Method* MethodPolicy::Find(absl::string_view path) const {
  const auto it = methods_.find(path);
  return it == methods_.end() ? nullptr : it->second.get();
}

bool MethodPolicy::TakeTurn(const Method& method, absl::string_view caller, absl::Time now) {
  if (method.max_per_second == 0) return true;
  const double limit = method.max_per_second;
  absl::MutexLock lock(&mutex_);
  if (buckets_.size() >= kMaxBuckets) {  // those that are full again say nothing
    absl::erase_if(buckets_, [&](const auto& entry) { return now - entry.second.at > absl::Seconds(1); });
  }
  Bucket& bucket = buckets_.try_emplace(absl::StrCat(method.path, " ", caller), Bucket{limit, now}).first->second;
  bucket.calls = std::min(limit, bucket.calls + limit * std::max(0.0, absl::ToDoubleSeconds(now - bucket.at)));
  bucket.at = now;
  if (bucket.calls < 1) return false;
  bucket.calls -= 1;
  return true;
}

}  // namespace manta::rpc

#include "common/actor/keyed_replies.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "common/base/message_bytes.h"
#include "common/rpc/call_key.h"

namespace manta::actor {
namespace {

// Of this process's lifetime: only this process compares them.
size_t Fingerprint(const google::protobuf::Message& message) {
  return absl::HashOf(DeterministicBytes(message));
}

}  // namespace

CallKey CallKey::Of(const grpc::CallbackServerContext& context) {
  CallKey key;
  const auto& metadata = context.client_metadata();
  if (const auto it = metadata.find(rpc::kCallKey); it != metadata.end()) {
    key.key.assign(it->second.data(), it->second.size());
  }
  key.kept_only = metadata.find(rpc::kKeptOnly) != metadata.end();
  return key;
}

absl::Status KeyedReplies::Run(const CallKey& key, const google::protobuf::Message& request,
                               google::protobuf::Message* reply, absl::FunctionRef<absl::Status()> call) {
  if (key.key.empty()) return call();
  const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.key == key.key; });
  if (key.kept_only) {
    if (kept == kept_.end()) return absl::NotFoundError(absl::StrCat("no result is kept under '", key.key, "'"));
    if (kept->status.ok()) reply->ParseFromString(kept->reply);
    return kept->status;
  }
  const size_t fingerprint = Fingerprint(request);
  if (kept != kept_.end()) {
    if (kept->request != fingerprint) {
      return absl::FailedPreconditionError(
          absl::StrCat("key '", key.key, "' was used for another request; nothing was done"));
    }
    if (kept->status.ok()) reply->ParseFromString(kept->reply);
    return kept->status;
  }
  const absl::Status status = call();
  if (kept_.size() >= most_) kept_.pop_front();
  kept_.push_back({key.key, fingerprint, status, status.ok() ? reply->SerializeAsString() : std::string()});
  return status;
}

}  // namespace manta::actor

// CallGuard: looks at every call of a server before its handler does.
//
// Judge says yes or no from the call's metadata and its connection's certificate: the token, the roles that it and the
// certificate have, the method's policy, its limit. What it refuses is counted and logged (refusals.h). Interceptors
// writes the audit line of methods that are marked so: who called, in which role, and at the end the outcome; of one with
// streams also at its beginning.
//
// gRPC drops a call whose message is too large, or whose caller gave up while it was sent, without a word to the
// server: of methods with one request, Judge remembers each call that it let pass until its handler is about to run;
// those that have not got there by their deadline (10 s at most) are counted as Refusal::kMessage by Sweep.
//
// Thread-safe. A server owns it together with its credentials.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/keys.h"
#include "common/rpc/method_policy.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"

namespace manta::rpc {

class CallGuard : public std::enable_shared_from_this<CallGuard> {
 public:
  // With `certificates` every connection has shown a certificate of the job's CA (tls.h), whose role counts too.
  CallGuard(Keys keys, bool certificates) : keys_(std::move(keys)), certificates_(certificates) {}

  // Before any call: without a policy every call is refused.
  void SetPolicy(std::shared_ptr<MethodPolicy> policy);

  std::shared_ptr<grpc::AuthMetadataProcessor> Processor();
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Interceptors();

  // Counts the calls that were let pass and never came to their handler.
  void Sweep(absl::Time now);

  // The metadata key that tokens travel under.
  static constexpr char kTokenKey[] = "x-manta-token";

 private:
  friend class CallInterceptor;
  friend class GuardProcessor;
  friend class GuardInterceptors;
  struct Call {  // what its metadata say
    absl::string_view path, token, timeout, certificate;
    bool has_token = false;
    uintptr_t connection = 0;
  };

  // OK: then `audited` says whether the call is to be written down.
  grpc::Status Judge(const Call& call, bool* audited);
  // In which of the method's roles it is called; both may say several.
  RoleSet RolesOf(const MethodPolicy::Method& method, absl::string_view token, absl::string_view certificate) const;
  void Started(const MethodPolicy::Method& method, uintptr_t connection);
  std::shared_ptr<MethodPolicy> policy() const;

  const Keys keys_;
  const bool certificates_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<MethodPolicy> policy_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::pair<uintptr_t, const MethodPolicy::Method*>, std::deque<absl::Time>> on_their_way_
      ABSL_GUARDED_BY(mutex_);  // deadlines
  absl::Time swept_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace manta::rpc

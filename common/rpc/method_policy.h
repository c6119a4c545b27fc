// MethodPolicy: who may call which method how often, as the proto says (access.proto).
//
// Default-deny: a method without the access option can be called by nobody, and a server that would serve one does not
// start. Thread-safe; the limits count calls of the policy's life.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/keys.h"

namespace manta::rpc {

class MethodPolicy {
 public:
  struct Method {
    std::string path;  // "/manta.v1.NodeService/Join"
    RoleSet roles = 0;
    bool audit = false;  // as the proto says, and what is for admins alone in any case
    bool idempotent = false;
    bool client_streaming = false;
    bool server_streaming = false;
    uint32_t max_per_second = 0;  // of one caller; 0: any number
  };

  // Of services by their full names ("manta.v1.NodeService"), looked up among the protos that the process is linked
  // with. FAILED_PRECONDITION names the first method without the access option, or the service that is not known.
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<MethodPolicy>> ForServices(
      const std::vector<std::string>& services);

  // nullptr for a method that is not served.
  const Method* Find(absl::string_view path) const;

  // False where `caller` has called the method more often than it allows: a bucket of max_per_second calls that fills
  // again within a second. At most 10,000 callers are remembered.
  bool TakeTurn(const Method& method, absl::string_view caller, absl::Time now);

 private:
  struct Bucket {
    double calls;
    absl::Time at;
  };
  absl::flat_hash_map<std::string, std::unique_ptr<Method>> methods_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace manta::rpc

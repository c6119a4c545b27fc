// TlsSnapshot: the certificate files of a process, read as one.
//
// A certificate and its key are two files, and are replaced one after the other. Who reads between the two renames
// holds a pair that does not fit, and cannot shake hands until it looks again. gRPC's watcher reads when it likes and
// takes what it finds, so it is given a copy to watch: anonymous memory, in which the pair is one file, replaced at
// once and only by one that fits. A pair that does not fit (yet) changes nothing.
//
// One of each set of files in a process, for as long as that lives; one thread looks after all of them. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/tls.h"
#include "grpcpp/security/tls_certificate_provider.h"

namespace manta::rpc {

class TlsSnapshot {
 public:
  using Provider = std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider>;

  // Of these files as they are now. INVALID_ARGUMENT and NOT_FOUND as CheckFilesFit, where they do not fit for a
  // second. Starts no thread: provider() does.
  [[nodiscard]] static absl::StatusOr<TlsSnapshot*> Of(const TlsFiles& files);

  // What the newest certificate names its holder by.
  std::string uri() const;
  // For credentials: has the newest pair when it is returned, and takes over what comes later within two seconds.
  Provider provider();

  // Looks at the files once, and takes over what has changed and fits.
  void Refresh();

 private:
  explicit TlsSnapshot(TlsFiles files);
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Publish(int* fd, const std::string& content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TlsFiles files_;
  mutable absl::Mutex mutex_;
  std::string stamps_ ABSL_GUARDED_BY(mutex_);  // of the files that were taken over last
  std::string ca_ ABSL_GUARDED_BY(mutex_), pair_ ABSL_GUARDED_BY(mutex_), uri_ ABSL_GUARDED_BY(mutex_);
  absl::Time unfit_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // InfinitePast: and that was said
  int ca_fd_ ABSL_GUARDED_BY(mutex_) = -1, pair_fd_ ABSL_GUARDED_BY(mutex_) = -1;
  int generation_ ABSL_GUARDED_BY(mutex_) = 0;
  int provided_ ABSL_GUARDED_BY(mutex_) = -1;  // the generation that provider_ began with
  Provider provider_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace manta::rpc

#include "common/comm/cpu_collective.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/comm/cpu_collective_base.h"
#include "common/comm/rendezvous.h"
#include "common/comm/transports.h"

namespace manta::comm {
namespace {

// A group of one: every array is its own sum.
class SelfCollective final : public CpuCollectiveBase {
 public:
  SelfCollective() : CpuCollectiveBase(0, 1, absl::InfiniteDuration()) {}
  absl::Status AllReduce(void*, size_t, DataType, ReduceOp) override { return Begin(); }
  absl::Status Broadcast(void*, size_t, int) override { return Begin(); }
  absl::Status AllGather(const void* in, size_t bytes, void* out) override {
    if (bytes > 0 && in != out) std::memcpy(out, in, bytes);
    return Begin();
  }
  absl::Status ReduceScatter(const void* in, size_t count, void* out, DataType type, ReduceOp) override {
    return AllGather(in, count * SizeOf(type), out);
  }
  absl::Status Send(const void*, size_t, int to) override { return NoSuchRank(to); }
  absl::Status Recv(void*, size_t, int from) override { return NoSuchRank(from); }
  absl::Status Barrier() override { return Begin(); }
  absl::Status CheckPeers() override { return error(); }
  void Abort(std::string_view reason) override {
    (void)Fail(absl::CancelledError(absl::StrCat("collective aborted: ", std::string(reason))));
  }

 private:
  static absl::Status NoSuchRank(int rank) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not another rank of a group of 1"));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> CreateCpuCollective(const CpuCollectiveOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " of ", options.size, " makes no group"));
  }
  if (options.size == 1) return std::make_unique<SelfCollective>();
  if (options.nonce.empty()) return absl::InvalidArgumentError("a group of several ranks needs the job's secret");
  MANTA_ASSIGN_OR_RETURN(Group group, JoinGroup(options, SharedSegmentBytes(options.size)));
  return group.shared_memory ? NewSharedMemoryCollective(options, std::move(group))
                             : NewSocketCollective(options, std::move(group));
}

}  // namespace manta::comm

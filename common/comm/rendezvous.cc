#include "common/comm/rendezvous.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/comm/doorman.h"
#include "manta/v1/rendezvous.pb.h"

namespace manta::comm {
namespace {

// For a rank that has been let in to say which it is.
constexpr absl::Duration kGreetingTimeout = absl::Seconds(3);

// More connections than there are ranks: some may be strangers'.
size_t AtTheDoor(int size) { return 2 * static_cast<size_t>(size) + 64; }

template <typename Message>
absl::Status WriteProto(const Fd& fd, const Message& message, absl::Time deadline) {
  return WriteMessage(fd, message.SerializeAsString(), deadline);
}

template <typename Message>
absl::StatusOr<Message> ReadProto(const Fd& fd, absl::Time deadline) {
  MANTA_ASSIGN_OR_RETURN(const std::string bytes, ReadMessage(fd, deadline));
  Message message;
  if (!message.ParseFromString(bytes)) return absl::InvalidArgumentError("a message that is not one of ours");
  return message;
}

absl::Status CheckGreeting(const v1::JoinRequest& request, const CpuCollectiveOptions& options) {
  if (request.epoch() != options.epoch) {
    return absl::PermissionDeniedError(
        absl::StrCat("epoch ", request.epoch(), " where the group is at epoch ", options.epoch));
  }
  if (request.size() != options.size || request.rank() <= 0 || request.rank() >= options.size) {
    return absl::PermissionDeniedError(
        absl::StrCat("rank ", request.rank(), " of ", request.size(), " in a group of ", options.size));
  }
  return absl::OkStatus();
}

v1::JoinRequest Greeting(const CpuCollectiveOptions& options) {
  v1::JoinRequest request;
  request.set_epoch(options.epoch);
  request.set_rank(options.rank);
  request.set_size(options.size);
  request.set_host_id(HostId());
  return request;
}

absl::StatusOr<Fd> MakeSegment(size_t bytes) {
  Fd fd(memfd_create("manta-collective", MFD_CLOEXEC));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::InternalError(absl::StrCat("cannot make ", bytes, " bytes of shared memory: ", std::strerror(errno)));
  }
  return fd;
}

// Rank 0: waits for everybody, then tells everybody where everybody is.
class Host {
 public:
  Host(const CpuCollectiveOptions& options, absl::Time deadline)
      : options_(options), deadline_(deadline), requests_(options.size) {
    group_.peers.resize(options.size);
  }

  absl::StatusOr<Group> Run(size_t shared_memory_bytes) {
    MANTA_ASSIGN_OR_RETURN(Fd listener, Listen(options_.rendezvous));
    Doorman door(std::move(listener), options_.nonce, AtTheDoor(options_.size));
    if (absl::Status status = Gather(door); !status.ok()) {
      v1::JoinReply reply;
      *reply.mutable_status() = ToProto(status);
      for (const Fd& peer : group_.peers) {
        if (peer) (void)WriteProto(peer, reply, absl::Now() + absl::Milliseconds(200));
      }
      return status;
    }
    v1::JoinReply reply;
    bool one_host = options_.transport == CpuCollectiveOptions::Transport::kAuto;
    for (int r = 0; r < options_.size; ++r) {
      reply.add_addresses(requests_[r].address());
      if (r > 0 && requests_[r].host_id() != HostId()) one_host = false;
    }
    if (one_host) {
      MANTA_ASSIGN_OR_RETURN(group_.shared_memory, MakeSegment(shared_memory_bytes));
      reply.set_shared_memory(absl::StrCat("/proc/", getpid(), "/fd/", group_.shared_memory.get()));
      reply.set_shared_memory_bytes(shared_memory_bytes);
    }
    MANTA_RETURN_IF_ERROR(Tell(reply));
    v1::JoinAgreement agreement;
    agreement.set_shared_memory(one_host);
    for (int r = 1; r < options_.size; ++r) {
      absl::StatusOr<v1::JoinAgreement> answer = ReadProto<v1::JoinAgreement>(group_.peers[r], deadline_);
      if (!answer.ok()) return Annotate(answer.status(), absl::StrCat("rank ", r, " while joining"));
      if (!answer->shared_memory()) agreement.set_shared_memory(false);
    }
    MANTA_RETURN_IF_ERROR(Tell(agreement));
    if (!agreement.shared_memory()) group_.shared_memory.Close();
    return std::move(group_);
  }

 private:
  absl::Status Gather(Doorman& door) {
    for (;;) {
      std::vector<int> missing;
      for (int r = 1; r < options_.size; ++r) {
        if (group_.peers[r] && PeerClosed(group_.peers[r])) group_.peers[r].Close();
        if (!group_.peers[r]) missing.push_back(r);
      }
      if (missing.empty()) return absl::OkStatus();
      // In short turns, so that a rank that joined and died meanwhile is waited for again.
      absl::StatusOr<Fd> fd = door.Next(std::min(deadline_, absl::Now() + absl::Seconds(1)));
      if (!fd.ok() && !absl::IsDeadlineExceeded(fd.status())) return fd.status();
      if (!fd.ok() && absl::Now() >= deadline_) {
        return absl::DeadlineExceededError(absl::StrCat(
            "rank", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "), " of ", options_.size,
            " did not join at ", options_.rendezvous, " within ", absl::FormatDuration(options_.join_timeout)));
      }
      if (fd.ok()) Greet(*std::move(fd));
    }
  }

  void Greet(Fd fd) {
    const absl::Time until = std::min(deadline_, absl::Now() + kGreetingTimeout);
    absl::StatusOr<v1::JoinRequest> request = ReadProto<v1::JoinRequest>(fd, until);
    if (!request.ok()) return;
    absl::Status status = CheckGreeting(*request, options_);
    if (status.ok() && group_.peers[request->rank()] && !PeerClosed(group_.peers[request->rank()])) {
      status = absl::PermissionDeniedError(absl::StrCat("rank ", request->rank(), " is taken"));
    }
    if (!status.ok()) {
      v1::JoinReply reply;
      *reply.mutable_status() = ToProto(status);
      (void)WriteProto(fd, reply, until);
      return;
    }
    group_.peers[request->rank()] = std::move(fd);
    requests_[request->rank()] = *std::move(request);
  }

  template <typename Message>
  absl::Status Tell(const Message& message) {
    for (int r = 1; r < options_.size; ++r) {
      if (absl::Status status = WriteProto(group_.peers[r], message, deadline_); !status.ok()) {
        return Annotate(status, absl::StrCat("rank ", r, " while joining"));
      }
    }
    return absl::OkStatus();
  }

  const CpuCollectiveOptions& options_;
  const absl::Time deadline_;
  Group group_;
  std::vector<v1::JoinRequest> requests_;
};

// A connection to each rank between 0 and this one, and one from each above it.
absl::Status ConnectPeers(const CpuCollectiveOptions& options, const v1::JoinReply& reply, Doorman& door,
                          absl::Time deadline, Group& group) {
  for (int r = 1; r < options.rank; ++r) {
    absl::StatusOr<Fd> fd = ConnectToDoor(reply.addresses(r), options.nonce, deadline);
    if (!fd.ok()) return Annotate(fd.status(), absl::StrCat("rank ", r));
    MANTA_RETURN_IF_ERROR(WriteProto(*fd, Greeting(options), deadline));
    group.peers[r] = *std::move(fd);
  }
  for (int missing = options.size - 1 - options.rank; missing > 0;) {
    absl::StatusOr<Fd> fd = door.Next(deadline);
    if (!fd.ok()) return Annotate(fd.status(), "waiting for the ranks above");
    absl::StatusOr<v1::JoinRequest> request =
        ReadProto<v1::JoinRequest>(*fd, std::min(deadline, absl::Now() + kGreetingTimeout));
    if (!request.ok() || !CheckGreeting(*request, options).ok()) continue;
    if (request->rank() <= options.rank || group.peers[request->rank()]) continue;
    group.peers[request->rank()] = *std::move(fd);
    --missing;
  }
  return absl::OkStatus();
}

absl::StatusOr<Group> JoinHost(const CpuCollectiveOptions& options, absl::Time deadline) {
  Group group;
  group.peers.resize(options.size);
  MANTA_ASSIGN_OR_RETURN(Fd host, ConnectToDoor(options.rendezvous, options.nonce, deadline));
  MANTA_ASSIGN_OR_RETURN(Fd listener, ListenBeside(host));
  v1::JoinRequest request = Greeting(options);
  request.set_address(BoundAddress(listener));
  Doorman door(std::move(listener), options.nonce, AtTheDoor(options.size));
  MANTA_RETURN_IF_ERROR(WriteProto(host, request, deadline));
  absl::StatusOr<v1::JoinReply> reply = ReadProto<v1::JoinReply>(host, deadline);
  if (absl::IsUnavailable(reply.status())) return PeerGone(0, "before the group was complete");
  if (!reply.ok()) return Annotate(reply.status(), absl::StrCat("waiting for rank 0 at ", options.rendezvous));
  if (absl::Status status = FromProto(reply->status()); !status.ok()) return status;
  if (reply->addresses_size() != options.size) return absl::InternalError("rank 0 told of a group of another size");
  MANTA_RETURN_IF_ERROR(ConnectPeers(options, *reply, door, deadline, group));

  v1::JoinAgreement agreement;
  if (!reply->shared_memory().empty() && options.transport == CpuCollectiveOptions::Transport::kAuto) {
    group.shared_memory = Fd(open(reply->shared_memory().c_str(), O_RDWR | O_CLOEXEC));
  }
  agreement.set_shared_memory(static_cast<bool>(group.shared_memory));
  MANTA_RETURN_IF_ERROR(WriteProto(host, agreement, deadline));
  absl::StatusOr<v1::JoinAgreement> decision = ReadProto<v1::JoinAgreement>(host, deadline);
  if (absl::IsUnavailable(decision.status())) return PeerGone(0, "before the group was complete");
  if (!decision.ok()) return decision.status();
  if (!decision->shared_memory()) group.shared_memory.Close();
  group.peers[0] = std::move(host);
  return group;
}

}  // namespace

absl::Status PeerGone(int rank, std::string_view detail) {
  v1::ErrorInfo info;
  info.set_origin(v1::ORIGIN_WORKER_DIED);
  info.set_rank(rank);
  info.set_exit_code(-1);
  return WithErrorInfo(absl::UnavailableError(absl::StrCat("rank ", rank, " is gone: ", std::string(detail))), info);
}

absl::StatusOr<Group> JoinGroup(const CpuCollectiveOptions& options, size_t shared_memory_bytes) {
  const absl::Time deadline = absl::Now() + options.join_timeout;
  absl::StatusOr<Group> group =
      options.rank == 0 ? Host(options, deadline).Run(shared_memory_bytes) : JoinHost(options, deadline);
  if (!group.ok()) {
    return Annotate(group.status(),
                    absl::StrCat("rank ", options.rank, " of ", options.size, " cannot join its group"));
  }
  return group;
}

}  // namespace manta::comm

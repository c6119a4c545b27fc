// The Collective of host memory: joins the ranks of a group, then shared memory where all of them are on one host, TCP
// (or Unix sockets) otherwise.
//
// Joining: rank 0 listens at `rendezvous` and every other rank connects there, trying again until the deadline; ranks
// listen for each other beside the address by which they have reached rank 0. Both ends of every connection prove that they
// know the nonce before anything else is read (doorman.h), and show the same epoch: a stranger, a rank of another job or of
// an older epoch is turned away, and the group goes on waiting for the right one. The shared segment is an anonymous file of
// rank 0's process and leaves nothing behind.
//
// Thread-safety and failure: see collective.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/collective.h"

namespace manta::comm {

struct CpuCollectiveOptions {
  int rank = 0;
  int size = 1;
  // "host:port" (a name, IPv4, or [IPv6]), or "unix:@name": a socket in the abstract namespace, for groups on one host, which
  // needs no free port to be found and leaves no file.
  std::string rendezvous;
  std::string nonce;                                                      // the job's secret; equal on all ranks, never sent
  uint64_t epoch = 0;                                                     // the group's generation; equal on all ranks
  absl::Duration join_timeout = absl::Seconds(60);                        // for all ranks to come together
  absl::Duration timeout = absl::Minutes(10);                             // for any one call
  enum class Transport { kAuto, kSockets } transport = Transport::kAuto;  // kSockets: never shared memory
};

// A group of one rank needs no rendezvous. DEADLINE_EXCEEDED names the ranks that did not come; PERMISSION_DENIED where
// rank 0 turned this rank away; INVALID_ARGUMENT for an address that makes no sense.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Collective>> CreateCpuCollective(const CpuCollectiveOptions& options);

}  // namespace manta::comm

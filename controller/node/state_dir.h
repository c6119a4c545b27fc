// An agent's state folder: what its shims, and the next agent of this node, need to find each other.
//
//   agent.key            32 random bytes, 0600: an agent that has read it may take over the shims
//   lock                 held by the agent: there is one at a time
//   incarnation          the agent's lineage: kept while the machine is up
//   shims/NAME.sock      each living shim listens on its own
//   exits/NAME           a serialised ActorReport: an exit that the head has not acknowledged
//   worker.token         for MANTA_TOKEN_FILE
//
// NAME is the actor and its epoch ("train-0.3"; '/' becomes '_'). Socket paths go through /proc/self/fd, so that the
// folder's own path may be longer than a socket's address (108 bytes). Functions are thread-safe; a folder that is on a
// file system without sockets gives an error at Open, of the agent alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/file_lock.h"
#include "manta/v1/node.pb.h"

namespace manta::node {

class StateDir {
 public:
  // Makes the folder where it is missing and takes the lock. FAILED_PRECONDITION where another agent holds it.
  [[nodiscard]] static absl::StatusOr<StateDir> Open(const std::string& path);
  StateDir(StateDir&& other) noexcept = default;

  const std::string& path() const { return path_; }
  const std::string& agent_key() const { return key_; }
  uint64_t incarnation() const { return incarnation_; }

 private:
  StateDir() = default;
  std::string path_, key_;
  uint64_t incarnation_ = 0;
  FileLock lock_;
};

std::string StateName(const std::string& actor_id, uint64_t epoch);

// A shim's: empty where the file cannot be read.
std::string ReadAgentKey(const std::string& state_dir);
// A listening SOCK_SEQPACKET socket at shims/NAME.sock, non-blocking; -1 where there is no such folder.
int ListenAsShim(const std::string& state_dir, const std::string& name);
void RemoveShimSocket(const std::string& state_dir, const std::string& name);
std::vector<std::string> ShimNames(const std::string& state_dir);
// Connected, non-blocking; -1 where nobody listens (any more).
int ConnectToShim(const std::string& state_dir, const std::string& name);

// A full disk loses the file, not the process that writes it.
void WriteExit(const std::string& state_dir, const v1::ActorReport& report);
void RemoveExit(const std::string& state_dir, const std::string& actor_id, uint64_t epoch);
std::vector<v1::ActorReport> ReadExits(const std::string& state_dir);

// Replaced whole, readable by its owner alone; without fsync: after a crash of the machine these files mean nothing.
bool ReplaceFile(const std::string& path, std::string_view content);

}  // namespace manta::node

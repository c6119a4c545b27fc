// The flags that the node agent gives to every worker. See worker.h.
//
// What no flag says is taken from the environment that the agent sets: MANTA_ACTOR_ID, MANTA_EPOCH, MANTA_CONTROLLER,
// MANTA_TOKEN_FILE, and MANTA_LISTEN on a node that others reach. A worker that a shim has started (MANTA_SHIM_FD,
// shim_link.h) is announced by it; every other one is --standalone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace manta::actor {

struct WorkerFlags {
  std::string actor_id = "standalone-0";
  int rank = 0;
  uint64_t epoch = 0;
  std::string controller;  // where the head was when this worker was started; empty where standalone
  std::string token_file;
  std::string listen = "127.0.0.1:0";
  bool standalone = false;
  int parent_pid = 0;
  std::vector<std::string> rest;
};

// Takes "--name value" and "--name=value". INVALID_ARGUMENT names the flag that is missing or wrong.
[[nodiscard]] absl::StatusOr<WorkerFlags> ParseWorkerFlags(const std::vector<std::string>& args);

}  // namespace manta::actor

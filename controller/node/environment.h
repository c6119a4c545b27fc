// The environment that a worker gets: not the agent's, but what an allow-list lets through, what its StartActor sets,
// and what tells a rank its place. Pure functions.
//
// Let through: the variables that programs, compute libraries and Manta itself are steered by (PATH, HOME, LANG, TZ,
// OMP_*, NCCL_*, CUDA_*, HF_*, MANTA_*, ...), and those that StartActor.env_allow names ("NAME", or "PREFIX*"). A
// variable that sounds like a secret (one of its words is TOKEN, SECRET, PASSWORD, KEY, ...) is let through only where
// env_allow has its very name.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "manta/v1/node.pb.h"

namespace manta::node {

struct WorkerEnvironment {
  std::map<std::string, std::string> variables;
  std::vector<std::string>
      notes;  // for the first lines of its log: devices, and secrets that were held back (no values)
};

// `inherited`: "NAME=value" lines, of the agent.
WorkerEnvironment BuildEnvironment(const std::vector<std::string>& inherited, const v1::StartActor& start);

bool SoundsSecret(std::string_view name);

// This process's own.
std::vector<std::string> OwnEnvironment();

}  // namespace manta::node

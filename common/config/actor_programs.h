// Where the programs of the tree `actors` lie: said when the configuration is loaded, because the processes that start
// them work elsewhere. A relative working_dir is of the folder that the command was given in, which also is the one of
// a group that has none. A program without a '/' is looked for in PATH; one with a relative path is of the group's
// working_dir, or lies beside the file that names it. What is absolute stays as it is: other machines may have it.
#pragma once

#include "absl/status/status.h"
#include "common/config/node.h"

namespace manta::config {

// INVALID_ARGUMENT with file:line for a program that is not there, or cannot be executed.
[[nodiscard]] absl::Status FindActorPrograms(Node& root);

}  // namespace manta::config

// A cluster as programs beside it reach it: by the folder of `manta launch` or of a run, which names its controller's
// address and holds its token.
//
//   auto client = actor::ConnectToCluster();                      // as the command line finds it
//   auto reply = (*client)->Actor("counter").CallBlocking<...>(...);
//
// Thread-safe: functions.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/actor/client.h"

namespace manta::actor {

// Where `manta launch` makes a cluster unless it is told where: ~/.manta/default.
std::filesystem::path DefaultClusterFolder();

// The folder that is given (or the latest run's below it), else MANTA_DIR's, else that of the run started from here
// last (logs/latest), else DefaultClusterFolder. NOT_FOUND says what was looked for and how to get one.
[[nodiscard]] absl::StatusOr<std::filesystem::path> FindClusterFolder(const std::string& given = "");

// FOLDER/controller.address. NOT_FOUND where the folder is no run's or its controller never came up.
[[nodiscard]] absl::StatusOr<std::string> ReadHeadAddress(const std::filesystem::path& folder);

// A client that finds actors by name. No connection is made yet.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Client>> ConnectToCluster(const std::string& folder = "");

}  // namespace manta::actor

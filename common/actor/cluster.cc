#include "common/actor/cluster.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/tls.h"
#include "common/rpc/token.h"

namespace manta::actor {
namespace {

namespace fs = std::filesystem;

constexpr char kAddressFile[] = "controller.address";

bool IsCluster(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / kAddressFile, error);
}

}  // namespace

fs::path DefaultClusterFolder() {
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr && home[0] != '\0' ? home : ".") / ".manta" / "default";
}

absl::StatusOr<fs::path> FindClusterFolder(const std::string& given) {
  const char* variable = std::getenv("MANTA_DIR");
  const std::string named = !given.empty() ? given : variable != nullptr ? variable : "";
  if (!named.empty()) {
    for (const fs::path& dir : {fs::path(named), fs::path(named) / "latest"}) {
      if (IsCluster(dir)) return dir;
    }
    return absl::NotFoundError(absl::StrCat(named, given.empty() ? " (MANTA_DIR)" : "",
                                            ": no cluster or run has started there (no ", kAddressFile, ")"));
  }
  for (const fs::path& dir : {fs::path("logs/latest"), DefaultClusterFolder()}) {
    if (IsCluster(dir)) return dir;
  }
  return absl::NotFoundError(absl::StrCat("no cluster: neither logs/latest nor ", DefaultClusterFolder().string(),
                                          " is one; give --dir, set MANTA_DIR, or start one with `manta launch`"));
}

absl::StatusOr<std::string> ReadHeadAddress(const fs::path& folder) {
  absl::StatusOr<std::string> text = ReadFile(folder / kAddressFile, 256);
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat(folder.string(), ": not the folder of a run that has started (",
                                            std::string(text.status().message()), ")"));
  }
  return text->substr(0, text->find('\n'));
}

absl::StatusOr<std::unique_ptr<Client>> ConnectToCluster(const std::string& given) {
  MANTA_ASSIGN_OR_RETURN(const fs::path folder, FindClusterFolder(given));
  MANTA_RETURN_IF_ERROR(ReadHeadAddress(folder).status());
  MANTA_RETURN_IF_ERROR(rpc::UseTlsFromEnvironment("", v1::ROLE_ADMIN));
  MANTA_ASSIGN_OR_RETURN(std::string token, rpc::ReadTokenFile(folder / "token"));
  // A controller that is started again may listen elsewhere.
  auto head = [folder] { return ReadHeadAddress(folder).value_or(""); };
  return Client::Create({.token = std::move(token), .head = std::move(head)});
}

}  // namespace manta::actor

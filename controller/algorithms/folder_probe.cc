#include "controller/algorithms/folder_probe.h"

#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

namespace fs = std::filesystem;

// A network file system may show a new file a moment later.
constexpr absl::Duration kPatience = absl::Seconds(5), kPause = absl::Milliseconds(100);

std::string RandomHex(int words) {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < words; ++i) absl::StrAppendFormat(&hex, "%08x", device());
  return hex;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderProbe>> FolderProbe::In(const fs::path& folder, std::vector<std::string> names) {
  std::error_code error;
  std::unique_ptr<FolderProbe> probe(new FolderProbe());
  probe->folder_ = fs::absolute(folder, error);
  probe->names_ = std::move(names);
  fs::create_directories(probe->folder_, error);
  if (error) return ErrnoError("create the folder", probe->folder_, error.value());
  probe->request_.set_path((probe->folder_ / absl::StrCat(".manta-same-folder-", RandomHex(2))).string());
  probe->request_.set_content(RandomHex(4) + "\n");
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(probe->request_.path(), probe->request_.content()));
  return probe;
}

FolderProbe::~FolderProbe() {
  std::error_code ignored;
  for (size_t rank = 0; rank < names_.size(); ++rank) fs::remove(absl::StrCat(request_.path(), ".", rank), ignored);
  fs::remove(request_.path(), ignored);
}

Task<absl::Status> FolderProbe::Check(EventLoop* loop) {
  const absl::Time until = loop->Now() + kPatience;
  for (size_t rank = 0; rank < names_.size(); ++rank) {
    const std::string path = absl::StrCat(request_.path(), ".", rank);
    while (true) {
      const absl::StatusOr<std::string> said = ReadFile(path, 1024);
      if (said.ok() && *said == request_.content()) break;
      if (loop->Now() >= until) {
        co_return UserError(absl::StrCat("checkpointing.checkpoint_dir: what ", names_[rank], " writes to ", folder_.string(),
                                         " is not seen by the controller; ranks on several machines need a folder on a file "
                                         "system that all of them share"));
      }
      MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*loop, kPause, CancelToken()));
    }
  }
  co_return absl::OkStatus();
}

}  // namespace manta::controller

#include "common/checkpoint/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/checkpoint/shard_index.h"

namespace manta::checkpoint {
namespace {

constexpr size_t kWriteChunk = size_t{64} << 20;  // Linux writes at most 2 GiB a call

absl::Status WriteAll(int fd, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), std::min(bytes.size(), kWriteChunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status CheckSources(absl::Span<const TensorSource> tensors, const std::filesystem::path& path) {
  absl::flat_hash_set<std::string_view> names;
  for (const TensorSource& t : tensors) {
    const std::string where = StrCat(path.string(), ": tensor \"", t.name, "\": ");
    if (t.name == "__metadata__") return UserError(where + "the name is taken by the format");
    if (!names.insert(t.name).second) return UserError(where + "given twice");
    const std::optional<uint64_t> bytes = TensorBytes(t.dtype, t.shape);
    if (!bytes || *bytes != t.bytes.size()) {
      return UserError(
          StrCat(where, t.bytes.size(), " bytes do not fit shape ", ShapeText(t.shape), " of ", DTypeName(t.dtype)));
    }
  }
  return absl::OkStatus();
}

// Removes model*.safetensors and the index that are not in `keep`: a reader would prefer a stale model.safetensors.
absl::Status RemoveStale(const std::filesystem::path& folder, const std::set<std::string>& keep) {
  std::error_code error;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool weights = absl::StartsWith(name, "model") &&
                         (absl::EndsWith(name, ".safetensors") || name == "model.safetensors.index.json");
    if (weights && !keep.contains(name)) stale.push_back(entry.path());
  }
  for (const auto& path : stale) {
    if (!std::filesystem::remove(path, error) && error) return ErrnoError("remove", path, error.value());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteSafetensors(const std::filesystem::path& path, absl::Span<const TensorSource> tensors,
                              const Metadata& metadata) {
  MANTA_RETURN_IF_ERROR(CheckSources(tensors, path));
  std::vector<TensorInfo> infos;
  for (const TensorSource& t : tensors) infos.push_back({t.name, t.dtype, t.shape, 0, 0});
  std::string header;
  try {
    header = SafetensorsHeaderBytes(infos, metadata);
  } catch (const std::exception& error) {  // a name that is not UTF-8
    return UserError(StrCat(path.string(), ": ", error.what()));
  }
  if (header.size() - 8 > kMaxHeaderBytes) return UserError(StrCat(path.string(), ": the header is above its cap"));

  const std::filesystem::path temporary = StrCat(path.string(), ".tmp.", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError("create", temporary, errno);
  bool open_fd = true, renamed = false;
  absl::Cleanup clean = [&] {
    if (open_fd) close(fd);
    if (!renamed) unlink(temporary.c_str());
  };
  MANTA_RETURN_IF_ERROR(WriteAll(fd, header, temporary));
  for (const TensorSource& t : tensors) {
    MANTA_RETURN_IF_ERROR(Annotate(WriteAll(fd, t.bytes, temporary), StrCat("tensor \"", t.name, "\"")));
  }
  if (fsync(fd) != 0) return ErrnoError("fsync", temporary, errno);
  open_fd = false;
  if (close(fd) != 0) return ErrnoError("close", temporary, errno);
  if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoError("rename to", path, errno);
  renamed = true;
  return SyncDirectory(path.parent_path().empty() ? "." : path.parent_path());
}

absl::Status WriteCheckpoint(const std::filesystem::path& folder, absl::Span<const TensorSource> tensors,
                             uint64_t max_shard_bytes) {
  MANTA_RETURN_IF_ERROR(CheckSources(tensors, folder));
  std::vector<std::vector<TensorSource>> shards(1);
  uint64_t total = 0, in_shard = 0;
  for (const TensorSource& t : tensors) {
    if (in_shard > 0 && in_shard + t.bytes.size() > max_shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(t);
    in_shard += t.bytes.size();
    total += t.bytes.size();
  }
  if (shards.size() == 1) {
    MANTA_RETURN_IF_ERROR(WriteSafetensors(folder / "model.safetensors", shards[0]));
    return RemoveStale(folder, {"model.safetensors"});
  }
  ShardIndex index;
  index.total_size = total;
  std::set<std::string> files = {"model.safetensors.index.json"};
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    MANTA_RETURN_IF_ERROR(WriteSafetensors(folder / name, shards[i]));
    for (const TensorSource& t : shards[i]) index.weight_map[t.name] = name;
    files.insert(name);
  }
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(folder / "model.safetensors.index.json", ShardIndexText(index)));
  return RemoveStale(folder, files);
}

}  // namespace manta::checkpoint

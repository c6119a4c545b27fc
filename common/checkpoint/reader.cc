#include "common/checkpoint/reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "absl/cleanup/cleanup.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/checkpoint/shard_index.h"

namespace manta::checkpoint {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open", path, errno);
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoError("stat", path, errno);
  if (!S_ISREG(info.st_mode)) return UserError(StrCat(path.string(), ": not a regular file"));
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::unique_ptr<MappedFile>(new MappedFile(nullptr, 0));
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return ErrnoError("map", path, errno);
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<const char*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

absl::StatusOr<std::unique_ptr<Checkpoint::File>> Checkpoint::OpenFile(const std::filesystem::path& path) {
  auto file = std::make_unique<File>();
  file->name = path.string();
  MANTA_ASSIGN_OR_RETURN(file->mapping, MappedFile::Open(path));
  const std::string_view bytes = file->mapping->bytes();
  MANTA_ASSIGN_OR_RETURN(file->header, ParseSafetensorsHeader(bytes, bytes.size(), file->name));
  return file;
}

void Checkpoint::Add(const File& file, const TensorInfo& info) {
  const std::string_view bytes = file.mapping->bytes().substr(file.header.data_start + info.begin, info.bytes());
  tensors_.emplace(info.name, TensorView{&info, bytes, file.name});
}

absl::Status Checkpoint::OpenShards(const std::filesystem::path& index_path) {
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path, kMaxHeaderBytes));
  MANTA_ASSIGN_OR_RETURN(const ShardIndex index, ParseShardIndex(text, index_path.string()));
  std::map<std::string, const File*> shards;
  for (const auto& [tensor, shard] : index.weight_map) {
    const File*& file = shards[shard];
    if (file == nullptr) {
      const std::filesystem::path path = index_path.parent_path() / shard;
      absl::StatusOr<std::unique_ptr<File>> opened = OpenFile(path);
      if (absl::IsNotFound(opened.status())) {
        return UserError(StrCat(index_path.string(), ": tensor \"", tensor, "\": shard ", shard, " is missing"));
      }
      MANTA_RETURN_IF_ERROR(opened.status());
      files_.push_back(*std::move(opened));
      file = files_.back().get();
    }
  }
  for (const auto& [shard, file] : shards) {
    for (const TensorInfo& info : file->header.tensors) {
      const auto it = index.weight_map.find(info.name);
      if (it == index.weight_map.end()) {
        return UserError(StrCat(file->name, ": tensor \"", info.name, "\": not named by ", index_path.string()));
      }
      if (it->second == shard) Add(*file, info);
    }
  }
  for (const auto& [tensor, shard] : index.weight_map) {
    if (Find(tensor) == nullptr) {
      return UserError(StrCat(index_path.string(), ": tensor \"", tensor, "\": not in its shard ", shard));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::filesystem::path& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  std::error_code error;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, error)) {
    file = path / "model.safetensors";
    const std::filesystem::path index = path / "model.safetensors.index.json";
    if (!std::filesystem::exists(file, error)) {
      if (!std::filesystem::exists(index, error)) {
        return UserError(
            StrCat(path.string(), ": no weights: expected model.safetensors or model.safetensors.index.json"));
      }
      MANTA_RETURN_IF_ERROR(checkpoint.OpenShards(index));
      return checkpoint;
    }
  }
  MANTA_ASSIGN_OR_RETURN(std::unique_ptr<File> opened, OpenFile(file));
  checkpoint.files_.push_back(std::move(opened));
  for (const TensorInfo& info : checkpoint.files_[0]->header.tensors) checkpoint.Add(*checkpoint.files_[0], info);
  return checkpoint;
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto it = tensors_.find(absl::string_view(name.data(), name.size()));
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, view] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

const std::vector<std::pair<std::string, std::string>>& Checkpoint::metadata() const {
  static const auto* none = new std::vector<std::pair<std::string, std::string>>();
  return files_.empty() ? *none : files_[0]->header.metadata;
}

}  // namespace manta::checkpoint

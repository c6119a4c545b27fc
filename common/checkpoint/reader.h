// Reading a model's weights: one safetensors file, or shards under model.safetensors.index.json. Files are mapped, not
// read: opening costs the header, and a tensor's bytes come from the disk when they are touched.
//
// A Checkpoint owns its mappings; views into it are valid while it lives (it can be moved). Const methods are
// thread-safe. Errors are INVALID_ARGUMENT (broken files) or what the system said (NOT_FOUND, ...), and name the file
// and the tensor. A file that shrinks while it is mapped ends the process with SIGBUS, as with every mapping.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/safetensors.h"

namespace manta::checkpoint {

// A read-only private mapping of a whole file.
class MappedFile {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}
  const char* data_;
  size_t size_;
};

struct TensorView {
  const TensorInfo* info = nullptr;
  std::string_view bytes;  // row-major, little-endian; aligned only to a byte
  std::string_view file;   // for errors
};

class Checkpoint {
 public:
  // `path`: a .safetensors file, or a folder with model.safetensors or model.safetensors.index.json.
  [[nodiscard]] static absl::StatusOr<Checkpoint> Open(const std::filesystem::path& path);

  // Null where there is no such tensor.
  const TensorView* Find(std::string_view name) const;
  // Every tensor, sorted by name.
  std::vector<std::string_view> names() const;
  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const;

 private:
  struct File {
    std::string name;
    std::unique_ptr<MappedFile> mapping;
    SafetensorsHeader header;
  };
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<File>> OpenFile(const std::filesystem::path& path);
  [[nodiscard]] absl::Status OpenShards(const std::filesystem::path& index);
  void Add(const File& file, const TensorInfo& info);

  std::filesystem::path path_;
  std::vector<std::unique_ptr<File>> files_;
  absl::flat_hash_map<std::string, TensorView> tensors_;
};

}  // namespace manta::checkpoint

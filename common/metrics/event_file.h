// A TensorBoard event file: scalars that TensorBoard, and whatever else reads its format, can show.
//
// The file is a sequence of TFRecords (length, masked CRC of the length, data, masked CRC of the data, little-endian);
// each holds an Event protobuf, encoded here by hand since it needs five fields. Each call writes and flushes. Not
// thread-safe. Errors of the disk are statuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace manta::metrics {

class EventFile {
 public:
  // Makes `dir` and a new file in it, events.out.tfevents.SECONDS.HOST.PID.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::filesystem::path& dir);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // One event with all the scalars. `time` in Unix seconds.
  [[nodiscard]] absl::Status WriteScalars(int64_t step, double time, const std::map<std::string, double>& values);

  const std::filesystem::path& path() const { return path_; }

 private:
  EventFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  absl::Status WriteRecord(std::string_view data);

  int fd_;
  std::filesystem::path path_;
};

}  // namespace manta::metrics

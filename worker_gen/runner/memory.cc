#include "worker_gen/runner/memory.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"

namespace manta::gen {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number that a file of /sys or /proc holds; kUnknown for "max" and for files that are not there.
int64_t NumberIn(const char* path) {
  const absl::StatusOr<std::string> text = ReadFile(path, 4096);
  int64_t value;
  return text.ok() && absl::SimpleAtoi(*text, &value) ? value : kUnknown;
}

int64_t MemAvailable() {
  const absl::StatusOr<std::string> text = ReadFile("/proc/meminfo", 1 << 16);
  if (!text.ok()) return kUnknown;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes;
    if (words.size() >= 2 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kibibytes))
      return kibibytes * 1024;
  }
  return kUnknown;
}

}  // namespace

int64_t AvailableHostBytes() {
  int64_t available = MemAvailable();
  const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max");
  const int64_t used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit != kUnknown && used != kUnknown) available = std::min(available, std::max<int64_t>(limit - used, 0));
  return available == kUnknown ? int64_t{1} << 30 : available;
}

absl::StatusOr<int32_t> ChooseNumBlocks(const CacheRequest& request, int64_t available_bytes) {
  if (!(request.memory_fraction >= 0 && request.memory_fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_fraction is ", request.memory_fraction, "; it must be in (0, 1], or 0 for the default"));
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (request.num_blocks != 0) {
    if (request.num_blocks < 1 || request.num_blocks > kMost) {
      return absl::InvalidArgumentError(
          absl::StrCat("num_blocks is ", request.num_blocks, "; it must be between 1 and ", kMost, ", or 0 to choose"));
    }
    return static_cast<int32_t>(request.num_blocks);
  }
  const double fraction = request.memory_fraction == 0 ? 0.5 : request.memory_fraction;
  const int64_t fits = static_cast<int64_t>(fraction * static_cast<double>(available_bytes)) / request.block_bytes;
  if (fits < request.blocks_per_sequence) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the cache of one sequence of the greatest length needs ", request.blocks_per_sequence,
                     " blocks of ", request.block_bytes, " bytes; ", fraction, " of the ", available_bytes,
                     " bytes available holds ", fits, ": lower max_model_len or raise memory_fraction"));
  }
  return static_cast<int32_t>(std::min({fits, request.blocks_per_sequence * request.max_num_seqs, kMost}));
}

}  // namespace manta::gen

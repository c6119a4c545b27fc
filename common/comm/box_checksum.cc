#include "common/comm/box_checksum.h"

#include "common/base/status.h"
#include "common/comm/hash64.h"

namespace manta::comm {

absl::StatusOr<uint64_t> BoxChecksum(DeviceTransport& transport, const PlacedBox& box, absl::Time deadline) {
  std::vector<std::byte> host(static_cast<uint64_t>(box.whole.Elements()) * box.width);
  if (!host.empty()) {
    MANTA_RETURN_IF_ERROR(transport.Copy({CopyRun{host.data(), box.data, host.size()}}, deadline));
  }
  Hash64 hash;
  ForEachRun(box.whole, box.part, [&](int64_t at, int64_t, int64_t elements) {
    hash.Update(host.data() + static_cast<uint64_t>(at) * box.width, static_cast<uint64_t>(elements) * box.width);
  });
  return hash.Finish();
}

}  // namespace manta::comm

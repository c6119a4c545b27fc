// The safetensors header.
#include "common/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto header = manta::checkpoint::ParseSafetensorsHeader(bytes, size, "fuzz.safetensors");
  if (!header.ok()) return 0;
  // What was accepted lies inside the file and can be written again.
  for (const auto& tensor : header->tensors) {
    if (tensor.begin > tensor.end || header->data_start + tensor.end > size) __builtin_trap();
  }
  (void)manta::checkpoint::SafetensorsHeaderBytes(header->tensors, header->metadata);
  return 0;
}

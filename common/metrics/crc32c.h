// CRC-32C (Castagnoli), and the masked form that TFRecord files carry. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace manta::metrics {

uint32_t Crc32c(std::string_view bytes);

// A rotation and an addition: a checksum over data that has checksums inside is then no trivial value.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace manta::metrics

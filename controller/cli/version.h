// What this build is.
#pragma once

namespace manta::cli {

inline constexpr char kVersion[] = MANTA_VERSION;
inline constexpr char kTorchVersion[] = "2.11.0";

}  // namespace manta::cli

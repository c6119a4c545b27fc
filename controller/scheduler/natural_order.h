// The order in which people count: "node-2" before "node-10". Thread-safe.
#pragma once

#include <string_view>

namespace manta::controller::scheduler {

// A strict total order: "n-01" and "n-1" are apart.
bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace manta::controller::scheduler

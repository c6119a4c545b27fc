// A line for the process's log, from files that cannot include spdlog: LibTorch's headers bring another fmt. Thread-safe.
#pragma once

#include <string_view>

namespace manta {

void LogInfo(std::string_view line);
void LogWarning(std::string_view line);

}  // namespace manta

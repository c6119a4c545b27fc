#include "common/base/log.h"

#include "spdlog/spdlog.h"

namespace manta {

void LogInfo(std::string_view line) {
  spdlog::info("{}", line);
}

void LogWarning(std::string_view line) {
  spdlog::warn("{}", line);
}

}  // namespace manta

// golden_losses DIR [--strict]: compares Manta's losses, advantages, rewards, packing and learning rates with the
// golden values below DIR (index.json, GROUP/CASE.json, GROUP/CASE.safetensors). Output and exit codes: report.h.
#include <cstring>
#include <functional>

#include "common/base/file.h"
#include "common/base/status.h"
#include "tests/golden/loss_case.h"

namespace manta::golden {
namespace {

using Runner = std::function<void(Report&, const LossCase&)>;

const std::map<std::string, Runner>& Runners() {
  static const auto& runners = *new std::map<std::string, Runner>{
      {"clipped_pg", RunClippedPg},  {"topk_topp", RunFilter}, {"sft", RunSft},         {"primitives", RunPrimitive},
      {"advantages", RunAdvantages}, {"rewards", RunRewards},  {"packing", RunPacking}, {"lr_schedule", RunLrSchedule},
  };
  return runners;
}

int Main(const std::string& directory, bool strict) {
  const auto text = ReadFile(std::filesystem::path(directory) / "index.json");
  if (!text.ok()) {
    std::fprintf(stderr, "golden_losses: %s\n", std::string(text.status().message()).c_str());
    return kUsageError;
  }
  Report report(strict);
  const auto index = nlohmann::json::parse(*text, nullptr, false);
  if (!index.is_array()) {
    std::fprintf(stderr, "golden_losses: %s/index.json is not a list of cases\n", directory.c_str());
    return kUsageError;
  }
  for (const auto& entry : index) {
    if (!entry.is_object() || !entry.contains("group") || !entry.contains("case")) {
      report.Fail("index.json", "-", "an entry without group or case");
      continue;
    }
    const std::string group = entry.at("group"), name = entry.at("case");
    const auto runner = Runners().find(group);
    if (runner == Runners().end()) {
      report.NotImplemented(group + "/" + name, "not implemented");
      continue;
    }
    const auto loaded = LossCase::Load(directory, group, name);
    if (!loaded.ok()) {
      report.Fail(group + "/" + name, "-", std::string(loaded.status().message()));
      continue;
    }
    try {
      runner->second(report, *loaded);
    } catch (const std::exception& error) {
      report.Fail(loaded->name(), "-", error.what());
    }
  }
  return report.Finish();
}

}  // namespace
}  // namespace manta::golden

int main(int argc, char** argv) {
  std::string directory;
  bool strict = false, wrong = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--strict") == 0) {
      strict = true;
    } else if (argv[i][0] != '-' && directory.empty()) {
      directory = argv[i];
    } else {
      wrong = true;
    }
  }
  if (wrong || directory.empty()) {
    std::fprintf(stderr, "usage: golden_losses DIR [--strict]\n");
    return manta::golden::kUsageError;
  }
  return manta::golden::Main(directory, strict);
}

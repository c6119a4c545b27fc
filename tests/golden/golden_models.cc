// golden_models DIR [--strict] [--device cpu|cuda] [--dtype fp32|bf16]
//
// Compares Manta's models with a folder of golden values: logits, log-probabilities, layers, loss, every gradient,
// greedy tokens, the optimiser's trajectory. Every sub-folder with a golden.json is a model; one with config.v4.json is
// run a second time with it. Output and exit codes are report.h's.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/cuda/load.h"
#include "tests/golden/model_case.h"
#include "tests/golden/report.h"

namespace {

int Usage(const std::string& complaint) {
  std::fprintf(stderr,
               "golden_models: %s\nusage: golden_models DIR [--strict] [--device cpu|cuda] [--dtype fp32|bf16]\n",
               complaint.c_str());
  return manta::golden::kUsageError;
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::string dir;
  bool strict = false;
  manta::golden::ModelRun run;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--strict") {
      strict = true;
    } else if (arg == "--device") {
      if (value != "cpu" && value != "cuda") return Usage("--device: expected cpu or cuda");
      run.device = value == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
      ++i;
    } else if (arg == "--dtype") {
      if (value != "fp32" && value != "bf16") return Usage("--dtype: expected fp32 or bf16");
      run.dtype = value == "bf16" ? at::kBFloat16 : at::kFloat;
      ++i;
    } else if (arg.starts_with("-") || !dir.empty()) {
      return Usage("unexpected argument " + arg);
    } else {
      dir = arg;
    }
  }
  if (dir.empty()) return Usage("a folder is missing");
  std::error_code error;
  if (!fs::is_directory(dir, error)) return Usage(dir + " is not a folder");
  if (run.device.is_cuda()) {
    const auto cuda = manta::cuda::Load();
    if (!cuda.ok()) {
      std::fprintf(stderr, "golden_models: --device cuda: %s\n", cuda.status().ToString().c_str());
      return 1;
    }
  }
  at::set_num_threads(1);

  manta::golden::Report report(strict);
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (fs::exists(entry.path() / "golden.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    const std::string name = "models/" + folder.filename().string();
    manta::golden::RunModelCase(folder, "config.json", name, run, report);
    if (fs::exists(folder / "config.v4.json")) {
      manta::golden::RunModelCase(folder, "config.v4.json", name + ".v4", run, report);
    }
    if (fs::exists(folder / "lora")) report.NotImplemented(name + "/lora", "LoRA is not implemented");
  }
  return report.Finish();
}

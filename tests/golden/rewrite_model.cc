// rewrite_model IN OUT [fp32|bf16|fp16]: reads the model in folder IN and writes it into the new folder OUT as Manta
// writes checkpoints. rewrite_vs_hf.py opens both with Hugging Face transformers and compares.
#include <cstdio>
#include <filesystem>
#include <string>

#include "common/model/parameters.h"
#include "tests/golden/report.h"

namespace {

int Run(const std::string& in, const std::string& out, at::ScalarType type, uint64_t max_shard_bytes) {
  const auto config = manta::model::LoadModelConfig(in);
  if (!config.ok()) return std::fprintf(stderr, "%s\n", config.status().ToString().c_str()), 1;
  const auto parameters = manta::model::Parameters::Load(*config, in, at::kFloat);
  if (!parameters.ok()) return std::fprintf(stderr, "%s\n", parameters.status().ToString().c_str()), 1;
  std::filesystem::create_directories(out);
  const absl::Status saved = parameters->Save(out, type, max_shard_bytes);
  if (!saved.ok()) return std::fprintf(stderr, "%s\n", saved.ToString().c_str()), 1;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string type = argc > 3 ? argv[3] : "fp32";
  if (argc < 3 || argc > 4 || (type != "fp32" && type != "bf16" && type != "fp16")) {
    std::fprintf(stderr, "usage: rewrite_model IN OUT [fp32|bf16|fp16]\n");
    return manta::golden::kUsageError;
  }
  // Small shards, so that the index is tested too.
  return Run(argv[1], argv[2], type == "bf16" ? at::kBFloat16 : type == "fp16" ? at::kHalf : at::kFloat, 200'000);
}

#include "common/config/device.h"

#include "absl/strings/str_cat.h"

namespace manta::config {
namespace {

constexpr char kTrainerKey[] = "policy.precision";

std::string DeviceText(const RunConfig& run, bool cuda) {
  if (cuda) return "on a GPU";
  return run.cluster.device == DeviceChoice::kCpu ? "on the CPU (cluster.device: cpu)"
                                                  : "on the CPU (cluster.device: auto, and there is no GPU)";
}

absl::Status CheckTrainer(const Tree& tree, const RunConfig& run) {
  if (run.policy.precision != "float16") return absl::OkStatus();
  return tree.Error(kTrainerKey, "'float16' is not implemented yet in training, expected bfloat16 or float32");
}

absl::Status CheckGenerator(const Tree& tree, const RunConfig& run, bool cuda) {
  const bool eval = run.algorithm == Algorithm::kEval;
  const std::string own = eval ? "generation.vllm_cfg.precision" : "policy.generation.vllm_cfg.precision";
  const std::string key = eval || tree.IsWritten(own) ? own : kTrainerKey;
  const std::string precision = GeneratorPrecision(run, cuda);
  if (precision != "float32" && (!cuda || precision != "bfloat16")) {
    return tree.Error(key, absl::StrCat("'", precision, "' is not implemented yet in the generator ",
                                        DeviceText(run, cuda), ", expected ", cuda ? "bfloat16 or float32" : "float32"));
  }
  if (!eval && precision != run.policy.precision) {
    return tree.Error(key, absl::StrCat("'", precision, "' must be ", kTrainerKey, ", which is '", run.policy.precision,
                                        "': the generator takes the trainer's weights as they are"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string GeneratorPrecision(const RunConfig& run, bool cuda) {
  const std::string& asked = run.policy.generation.dtype;
  if (!asked.empty() && asked != "auto") return asked;
  if (run.algorithm != Algorithm::kEval) return run.policy.precision;
  return cuda ? "bfloat16" : "float32";
}

absl::StatusOr<bool> ChooseCuda(const Tree& tree, const RunConfig& run, int num_gpus) {
  if (run.cluster.device == DeviceChoice::kCuda && num_gpus == 0) {
    return tree.Error("cluster.device", "'cuda', and there is no GPU; expected cpu, or auto");
  }
  const bool cuda = run.cluster.device == DeviceChoice::kCuda || (run.cluster.device == DeviceChoice::kAuto && num_gpus > 0);
  if (run.algorithm != Algorithm::kEval) {
    if (absl::Status status = CheckTrainer(tree, run); !status.ok()) return status;
  }
  if (run.algorithm != Algorithm::kSft) {
    if (absl::Status status = CheckGenerator(tree, run, cuda); !status.ok()) return status;
  }
  return cuda;
}

}  // namespace manta::config

// Evaluation: pass@k of a model on a dataset, without training.
#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "controller/algorithms/loop_context.h"
#include "controller/algorithms/validation.h"
#include "controller/data/dataset.h"
#include "nlohmann/json.hpp"

namespace manta::controller {

Task<absl::StatusOr<RunOutcome>> RunEval(LoopContext context) {
  const config::EvalConfig& eval = context.config.eval;
  auto dataset = LoadDataset(context.config.data.train);
  if (!dataset.ok()) co_return dataset.status();
  // What cannot be written is better known before the work than after it.
  if (std::error_code error; eval.save_path && !std::filesystem::exists(*eval.save_path, error)) {
    MANTA_CO_RETURN_IF_ERROR(WriteFileAtomically(*eval.save_path, ""));
  }
  context.events.Phase("evaluating");
  MANTA_CO_ASSIGN_OR_RETURN(const ValidationResult result,
                            co_await RunValidation(context, *dataset,
                                                   {.max_samples = -1,
                                                    .batch_size = 512,
                                                    .samples_per_prompt = eval.num_tests_per_prompt,
                                                    .pass_k = eval.k_value,
                                                    .seed = eval.seed}));
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : result.metrics) metrics[absl::StrCat("validation/", name)] = value;
  MANTA_CO_RETURN_IF_ERROR(context.logger.Log(0, 0, metrics));
  if (eval.save_path) {
    std::string lines;
    for (const Sample& sample : result.samples) {
      nlohmann::ordered_json line = {
          {"row", sample.prompt_index},        {"response", sample.response_text},
          {"answer", sample.extracted_answer}, {"expected", sample.ground_truth},
          {"reward", sample.reward},           {"status", std::string(sample.status.message())}};
      lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    }
    MANTA_CO_RETURN_IF_ERROR(WriteFileAtomically(*eval.save_path, lines));
  }
  RunOutcome outcome;
  const auto metric = [&](const char* name) {
    const auto it = result.metrics.find(name);
    return it == result.metrics.end() ? 0.0 : it->second;
  };
  outcome.summary = absl::StrFormat(
      "%d problems, %d sample%s each: accuracy %.4f, pass@%d %.4f\n%s", dataset->rows.size(), eval.num_tests_per_prompt,
      eval.num_tests_per_prompt == 1 ? "" : "s", metric("accuracy"), eval.k_value, metric("pass_k"), result.examples);
  co_return outcome;
}

}  // namespace manta::controller

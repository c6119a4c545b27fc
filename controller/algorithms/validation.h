// Validation by sampling: how many of a dataset's problems the current policy solves.
#pragma once

#include <map>
#include <string>

#include "common/base/task.h"
#include "controller/algorithms/loop_context.h"
#include "controller/data/dataset.h"

namespace manta::controller {

struct ValidationOptions {
  int64_t max_samples = 256;        // problems
  int64_t batch_size = 256;         // problems in flight at once
  int64_t samples_per_prompt = 1;
  int64_t pass_k = 1;               // pass@k needs samples_per_prompt >= k
  uint64_t seed = 0;                // the same problems and seeds at every validation
  int64_t samples_to_print = 0;     // in ValidationResult::printed
};

struct ValidationResult {
  std::map<std::string, double> metrics;  // accuracy, pass_k, avg_length, mean_gen_tokens_per_sample, num_failed_samples
  std::string examples;                   // the first few, for people
  std::string printed;                    // the first samples_to_print, likewise
  std::vector<Sample> samples;
};

// Draws with the generation tree's val_* sampling. A sample that failed counts as not solved in no figure: it is left out
// and counted; where all failed, the first one's status is returned.
[[nodiscard]] Task<absl::StatusOr<ValidationResult>> RunValidation(LoopContext context, const Dataset& dataset,
                                                                   ValidationOptions options);

// The unbiased estimate of the chance that one of k samples is right, when c of n were (Chen et al., arXiv 2107.03374):
// 1 - C(n - c, k) / C(n, k).
double PassAtK(int64_t n, int64_t c, int64_t k);

}  // namespace manta::controller

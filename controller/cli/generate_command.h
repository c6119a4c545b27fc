// `manta generate`: text from a model, with a generator process of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace manta::cli {

struct GenerateOptions {
  std::string model;                  // a folder
  std::string tokenizer;              // a folder; empty: the model's
  std::vector<std::string> prompts;   // at least one
  std::string system;                 // chat: a system message
  bool raw = false, chat = false;     // neither: chat where the model has a template
  int max_new_tokens = 128;
  double temperature = 0, top_p = 1, min_p = 0;
  int top_k = 0;
  unsigned long long seed = 0;
  std::vector<std::string> stop;
  bool stream = true;
  std::string device = "auto";
  int threads = 0;
};

// Prints what the model writes on stdout as it comes.
[[nodiscard]] absl::Status Generate(const GenerateOptions& options);

}  // namespace manta::cli

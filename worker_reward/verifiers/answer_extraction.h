// Finds the final answer in what a model wrote. Thread-safe; nothing here fails.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace manta::reward {

enum class AnswerForm {
  kAny,    // the last of \boxed{...} and #### ..., else "the answer is ...", else the last number
  kBoxed,  // only \boxed{...} (or \fbox)
  kHash,   // only #### ...
};

// What stands behind a closing </think>, where there is one, is searched.
std::optional<std::string> ExtractAnswer(std::string_view response, AnswerForm form);

// A dataset's truth: what is behind ####, or in \boxed{}, or all of it.
std::string TruthFrom(std::string_view ground_truth);

// "3 eggs and 12.5" -> "12.5": for answers that are sentences.
std::optional<std::string> LastNumber(std::string_view text);

}  // namespace manta::reward

// Splitting at matches: the five ways in which tokenizer.json lets a delimiter go with its neighbours.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/regex.h"

namespace manta::tokenizer {

enum class SplitBehavior {
  kRemoved,             // "a--b" at "-": a b
  kIsolated,            //               a - - b
  kMergedWithPrevious,  //               a- - b
  kMergedWithNext,      //               a - -b
  kContiguous,          //               a -- b
};

absl::StatusOr<SplitBehavior> LoadSplitBehavior(const JsonNode& node);

// Appends the pieces of `piece` that `matches` (ascending, not overlapping) leave; with `invert`, what matches is text
// and what lies between is the delimiter.
void SplitAt(const Piece& piece, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
             std::vector<Piece>* out);

}  // namespace manta::tokenizer

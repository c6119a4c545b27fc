// The heart of BPE: merging adjacent symbols, lowest rank first, leftmost among equals, until no pair merges (Sennrich
// et al. 2016, https://arxiv.org/abs/1508.07909, with the ranks of the training). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tokenizer/merge_table.h"

namespace manta::tokenizer {

// Merges within symbols[begin, symbols.size()), in place. Time: quadratic below some fifty symbols, where that is the
// faster way, n log n above.
void MergeSymbols(const MergeTable& merges, size_t begin, std::vector<int32_t>* symbols);

}  // namespace manta::tokenizer

// Which rows of a packed batch belong to which sequence, where sequences may share their beginnings. Values, free of
// LibTorch.
//
// Every row is held once. Sequence s adds the rows [cu_seqlens[s], cu_seqlens[s + 1]); before them it sees its prefix:
// rows that sequences before it have added. The sequences from one without a prefix up to the next such one are a tree,
// and no row is seen from another tree. Without prefixes this is what cu_seqlens usually says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace manta::model {

struct PackedLayout {
  std::vector<int64_t> cu_seqlens = {0};  // [num_sequences + 1]: starts at 0, never falls
  std::vector<int64_t> cu_prefixes;       // [num_sequences + 1] into prefix_rows; empty: no sequence has a prefix
  std::vector<int64_t> prefix_rows;       // each prefix's rows, oldest first

  size_t num_sequences() const { return cu_seqlens.empty() ? 0 : cu_seqlens.size() - 1; }
  int64_t num_rows() const { return cu_seqlens.empty() ? 0 : cu_seqlens.back(); }
  int64_t own(size_t s) const { return cu_seqlens[s + 1] - cu_seqlens[s]; }
  std::span<const int64_t> prefix(size_t s) const {
    if (cu_prefixes.empty()) return {};
    return std::span(prefix_rows)
        .subspan(static_cast<size_t>(cu_prefixes[s]), static_cast<size_t>(cu_prefixes[s + 1] - cu_prefixes[s]));
  }
};

// What is wrong with a layout of num_rows rows; empty where nothing is.
std::string LayoutFault(const PackedLayout& layout, int64_t num_rows);

}  // namespace manta::model

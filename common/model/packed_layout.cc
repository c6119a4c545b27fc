#include "common/model/packed_layout.h"

namespace manta::model {

std::string LayoutFault(const PackedLayout& layout, int64_t num_rows) {
  const std::vector<int64_t>&cu = layout.cu_seqlens, &prefixes = layout.cu_prefixes;
  if (cu.empty() || cu.front() != 0 || cu.back() != num_rows) {
    return "cu_seqlens must run from 0 to the number of tokens, " + std::to_string(num_rows);
  }
  for (size_t s = 0; s + 1 < cu.size(); ++s) {
    if (cu[s] > cu[s + 1]) return "cu_seqlens must not fall";
  }
  if (prefixes.empty()) return layout.prefix_rows.empty() ? "" : "prefix_rows without cu_prefixes";
  if (prefixes.size() != cu.size() || prefixes.front() != 0 ||
      prefixes.back() != static_cast<int64_t>(layout.prefix_rows.size())) {
    return "cu_prefixes must run from 0 to the number of prefix_rows, with an entry for each of cu_seqlens";
  }
  int64_t tree = 0;  // its first row
  for (size_t s = 0; s + 1 < cu.size(); ++s) {
    if (prefixes[s] > prefixes[s + 1]) return "cu_prefixes must not fall";
    if (prefixes[s] == prefixes[s + 1]) tree = cu[s];
    for (const int64_t row : layout.prefix(s)) {
      if (row < tree || row >= cu[s]) return "a prefix's rows must be of earlier sequences of its tree";
    }
  }
  return "";
}

}  // namespace manta::model

#include "common/kernels/cpu/table.h"

#include <cstdlib>
#include <string_view>

namespace manta::kernels::cpu {

const Table& Kernels() {
  static const Table* const table = [] {
    const char* asked = std::getenv("MANTA_ISA");
    const std::string_view most = asked == nullptr ? "avx512" : asked;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx512 && most == "avx512") return &Avx512Table();
    if (avx2 && most != "generic") return &Avx2Table();
    return &GenericTable();
  }();
  return *table;
}

int64_t AttentionScratch(int64_t tokens, int64_t head_dim) {
  const int64_t padded = (tokens + 15) / 16 * 16;
  return padded * (2 * head_dim + 8);
}

}  // namespace manta::kernels::cpu

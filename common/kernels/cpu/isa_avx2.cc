// The kernels for one instruction set: this file's compile options choose it.
#include "common/kernels/cpu/attention_impl.h"
#include "common/kernels/cpu/gemm_impl.h"
#include "common/kernels/cpu/paged_attention_impl.h"
#include "common/kernels/cpu/rows_impl.h"
#include "common/kernels/cpu/table.h"

namespace manta::kernels::cpu {

const Table& Avx2Table() {
  static const Table table = {GemmColumns,      PackPanel,         AttentionForwardHead, AttentionBackwardHead,
                              StorePagedTokens, AttendPagedTokens,
                              ::RmsNormForward, ::RmsNormBackward, SplitForward,         SplitBackward,
                              ::SiluMulForward, ::SiluMulBackward, ::LogSoftmaxGather,   ::LogSoftmaxGatherBackward};
  return table;
}

}  // namespace manta::kernels::cpu

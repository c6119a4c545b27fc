#include <cfloat>

#include "common/kernels/cuda/device.cuh"

namespace manta::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBins = 256;
using U64 = unsigned long long;

// Weights are summed as integers, so that sums neither depend on an order nor lose small terms: exp(0) is 2^40.
constexpr double kOne = 1099511627776.0;

// Integers in the order of the floats.
__device__ __forceinline__ unsigned Ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ U64 Weight(float logit, float largest, float scale) {
  return static_cast<U64>(static_cast<double>(expf((logit - largest) * scale)) * kOne);
}

struct Best {
  float value;
  int token;
};

__device__ Best BlockBest(Best best) {
  __shared__ Best all[kWarps];
  const auto better = [](const Best& a, const Best& b) {
    return a.value > b.value || (a.value == b.value && a.token < b.token);
  };
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Best other{__shfl_xor_sync(kAllLanes, best.value, offset), __shfl_xor_sync(kAllLanes, best.token, offset)};
    if (better(other, best)) best = other;
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) all[threadIdx.x / kWarp] = best;
  __syncthreads();
  best = all[0];
  for (int w = 1; w < kWarps; ++w) {
    if (better(all[w], best)) best = all[w];
  }
  return best;
}

__device__ U64 BlockSumU64(U64 x) {
  __shared__ U64 all[kWarps];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) all[threadIdx.x / kWarp] = x;
  __syncthreads();
  U64 sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += all[w];
  return sum;
}

// The largest key t such that the amount of the elements with Ordered(logit) >= t reaches `wanted`; among elements not
// below `floor`. amount(logit) is 1 (top-k) or a weight (top-p). A radix descent: four passes over the row, a byte
// each. `above` receives the amount strictly above t.
template <typename Amount>
__device__ unsigned Descend(const float* row, int64_t vocab, unsigned floor, U64 wanted, const Amount& amount,
                            U64& above) {
  __shared__ U64 bins[kBins];
  __shared__ unsigned chosen;
  __shared__ U64 chosen_above;
  unsigned prefix = 0;
  above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0;
    __syncthreads();
    const unsigned mask = shift == 24 ? 0u : ~0u << (shift + 8);
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
      const unsigned key = Ordered(row[i]);
      if (key >= floor && (key & mask) == prefix) atomicAdd(&bins[(key >> shift) & 255], amount(row[i]));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      U64 sum = above;
      int bin = kBins - 1;
      while (bin > 0 && sum + bins[bin] < wanted) sum += bins[bin--];
      chosen = static_cast<unsigned>(bin);
      chosen_above = sum;
    }
    __syncthreads();
    prefix |= chosen << shift;
    above = chosen_above;
    __syncthreads();
  }
  return prefix;
}

__global__ void __launch_bounds__(kThreads)
    SampleKernel(const float* __restrict__ logits, const SamplingRow* __restrict__ rows_in,
                 SampledRow* __restrict__ rows_out, int64_t vocab) {
  const float* row = logits + blockIdx.x * vocab;
  const SamplingRow options = rows_in[blockIdx.x];
  SampledRow& out = rows_out[blockIdx.x];

  Best best{-INFINITY, 0x7fffffff};
  bool bad = false;
  for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
    const float x = row[i];
    bad |= isnan(x);
    if (x > best.value) best = {x, static_cast<int>(i)};
  }
  bad = __syncthreads_or(bad);
  best = BlockBest(best);
  const float largest = best.value;
  if (bad || !isfinite(largest)) {
    if (threadIdx.x == 0) out = SampledRow{};
    return;
  }
  U64 raw = 0;
  for (int64_t i = threadIdx.x; i < vocab; i += kThreads) raw += Weight(row[i], largest, 1.0f);
  const double raw_log_total = log(static_cast<double>(BlockSumU64(raw)) / kOne);
  if (options.temperature <= 0.0f) {
    if (threadIdx.x == 0) out = {best.token, 0.0f, static_cast<float>(-raw_log_total)};
    return;
  }

  const float scale = 1.0f / options.temperature;
  const auto weight = [&](float x) { return Weight(x, largest, scale); };
  unsigned floor = 0;       // the least key that is kept
  int64_t floor_ties = -1;  // of the elements at `floor`, how many are kept, in token order; -1: all
  U64 above = 0;
  if (options.top_k > 0 && options.top_k < vocab) {
    floor = Descend(
        row, vocab, 0, static_cast<U64>(options.top_k), [](float) { return U64{1}; }, above);
  }
  if (options.top_p < 1.0f) {
    U64 kept = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) kept += Ordered(row[i]) >= floor ? weight(row[i]) : 0;
    const double total = static_cast<double>(BlockSumU64(kept));
    const U64 wanted = max(U64{1}, static_cast<U64>(ceil(static_cast<double>(options.top_p) * total)));
    floor = Descend(row, vocab, floor, wanted, weight, above);
    // Equal logits at the edge: only as many as it takes.
    const unsigned bits = floor & 0x80000000u ? floor & 0x7fffffffu : ~floor;
    const U64 each = weight(__uint_as_float(bits));
    floor_ties = each == 0 ? 1 : static_cast<int64_t>((wanted - above + each - 1) / each);
  }
  const U64 least = options.min_p > 0.0f ? static_cast<U64>(static_cast<double>(options.min_p) * kOne) : 1;

  // Each thread takes a run of tokens, so that running sums go in token order.
  const int64_t run = (vocab + kThreads - 1) / kThreads;
  const int64_t begin = min(vocab, threadIdx.x * run), end = min(vocab, begin + run);
  __shared__ U64 sums[kThreads + 1];
  __shared__ int ties[kThreads + 1];
  int my_ties = 0;
  for (int64_t i = begin; i < end; ++i) my_ties += Ordered(row[i]) == floor;
  ties[threadIdx.x + 1] = my_ties;
  __syncthreads();
  if (threadIdx.x == 0) {
    ties[0] = 0;
    for (int t = 1; t <= kThreads; ++t) ties[t] += ties[t - 1];
  }
  __syncthreads();
  // The weight with which element i counts; `tie` numbers the elements at the edge.
  const auto counted = [&](int64_t i, int64_t& tie) -> U64 {
    const unsigned key = Ordered(row[i]);
    if (key < floor) return 0;
    if (key == floor && floor_ties >= 0 && tie++ >= floor_ties) return 0;
    const U64 w = weight(row[i]);
    return w >= least ? w : 0;
  };
  int64_t tie = ties[threadIdx.x];
  U64 mine = 0;
  for (int64_t i = begin; i < end; ++i) mine += counted(i, tie);
  sums[threadIdx.x + 1] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    sums[0] = 0;
    for (int t = 1; t <= kThreads; ++t) sums[t] += sums[t - 1];
  }
  __syncthreads();
  const U64 total = sums[kThreads];  // at least the largest element's 2^40
  const U64 target = min(static_cast<U64>(options.uniform * static_cast<double>(total)), total - 1);
  if (target < sums[threadIdx.x] || target >= sums[threadIdx.x + 1]) return;
  U64 sum = sums[threadIdx.x];
  tie = ties[threadIdx.x];
  for (int64_t i = begin; i < end; ++i) {
    sum += counted(i, tie);
    if (sum <= target) continue;
    out.token = static_cast<int32_t>(i);
    out.logprob = static_cast<float>(static_cast<double>(row[i] - largest) / static_cast<double>(options.temperature) -
                                     log(static_cast<double>(total) / kOne));
    out.raw_logprob = static_cast<float>(static_cast<double>(row[i] - largest) - raw_log_total);
    return;
  }
}

}  // namespace

int Sample(const float* logits, const SamplingRow* rows_in, SampledRow* rows_out, int64_t rows, int64_t vocab,
           Stream stream) {
  if (rows == 0) return cudaSuccess;
  if (vocab <= 0 || vocab >= (int64_t{1} << 22)) return cudaErrorInvalidValue;  // sums stay below 2^64
  SampleKernel<<<static_cast<unsigned>(rows), kThreads, 0, AsStream(stream)>>>(logits, rows_in, rows_out, vocab);
  return cudaGetLastError();
}

}  // namespace manta::kernels::cuda

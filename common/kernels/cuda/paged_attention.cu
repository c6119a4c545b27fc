#include <cuda_pipeline.h>

#include <cfloat>

#include "common/kernels/cuda/device.cuh"

namespace manta::kernels::cuda {
namespace {

constexpr int kLanes = 8;  // lanes that share a key
constexpr int kThreads = 128;
constexpr int kTeams = kThreads / kLanes;  // keys looked at at once: key j goes to team j % kTeams
constexpr int kGroup = 4;                  // query heads of one kv head that a block takes
constexpr int kPipelineBytes = 32 << 10;   // of shared memory: bounds what is in flight

template <typename T>
__global__ void WriteKvCacheKernel(const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ k_cache,
                                   T* __restrict__ v_cache, const int64_t* __restrict__ slots, int64_t width) {
  const int64_t slot = slots[blockIdx.x];
  if (slot < 0) return;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    k_cache[slot * width + i] = k[blockIdx.x * width + i];
    v_cache[slot * width + i] = v[blockIdx.x * width + i];
  }
}

// A lane's share of a vector of head_dim elements: kElements of them, from lane * kElements on, 0 beyond the end.
template <typename T, int kElements>
__device__ __forceinline__ void LoadShare(const T* from, int lane, int head_dim, float (&to)[kElements]) {
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int at = lane * kElements + i;
    to[i] = at < head_dim ? ToFloat(from[at]) : 0.0f;
  }
}

// Keys and values on their way from the cache, several turns ahead of their use. Each thread copies its own share into
// shared memory and reads it back itself, so that no barrier is needed.
template <typename T, int kElements>
class Pipeline {
 public:
  static constexpr int kPacks = kElements / Pack<T>::kCount;  // of a key, and of a value
  static constexpr int kStages = kPacks > 0 ? kPipelineBytes / (kThreads * 2 * kPacks * 16) : 0;
  static constexpr bool kUsable = kPacks > 0 && kElements % Pack<T>::kCount == 0 && kStages >= 2;

  __device__ explicit Pipeline(unsigned char* memory) : memory_(memory) {}

  // Starts a turn's copies; `key` null: nothing is copied, and what is read is of an older turn.
  __device__ __forceinline__ void Start(int turn, const T* key, const T* value) {
    if (key != nullptr) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        __pipeline_memcpy_async(Place(turn, i), key + i * Pack<T>::kCount, 16);
        __pipeline_memcpy_async(Place(turn, kPacks + i), value + i * Pack<T>::kCount, 16);
      }
    }
    __pipeline_commit();
  }
  // Waits for the oldest turn in flight, where kStages - 1 are.
  __device__ __forceinline__ void Wait() {
    __pipeline_wait_prior(kStages - 2);
  }
  __device__ __forceinline__ void Read(int turn, float (&key)[kElements], float (&value)[kElements]) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const Pack<T> k = *static_cast<const Pack<T>*>(Place(turn, i)),
                    v = *static_cast<const Pack<T>*>(Place(turn, kPacks + i));
#pragma unroll
      for (int j = 0; j < Pack<T>::kCount; ++j) {
        key[i * Pack<T>::kCount + j] = ToFloat(k.at[j]);
        value[i * Pack<T>::kCount + j] = ToFloat(v.at[j]);
      }
    }
  }

 private:
  // Packs of neighbouring threads lie side by side: no bank is asked twice.
  __device__ __forceinline__ void* Place(int turn, int pack) const {
    return memory_ + (((turn % kStages) * 2 * kPacks + pack) * kThreads + threadIdx.x) * 16;
  }
  unsigned char* const memory_;
};

__device__ __forceinline__ float TeamSum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

// A block: one query token, up to kGroup query heads of one kv head. Each team of lanes runs an online softmax (Milakov
// and Gimelshein, 2018) over its keys; then the teams' results are merged in order. Which team a key goes to depends on
// its position alone, so a token's result depends on nothing but its own sequence.
template <typename T, int kElements, bool kPiped>
__global__ void __launch_bounds__(kThreads) PagedAttentionKernel(PagedAttentionArguments a) {
  const int64_t token = blockIdx.x;
  const int kv_head = blockIdx.y;
  const int group = static_cast<int>(a.heads / a.kv_heads);
  const int first = static_cast<int>(blockIdx.z) * kGroup;
  const int count = min(kGroup, group - first);
  const int head_dim = static_cast<int>(a.head_dim);
  const int team = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int position = a.token_position[token];
  const int32_t* blocks = a.block_tables + static_cast<int64_t>(a.token_sequence[token]) * a.max_blocks;
  const int64_t row = a.kv_heads * a.head_dim;  // of one slot
  const int64_t head_offset = static_cast<int64_t>(kv_head) * a.head_dim;
  const T* q = static_cast<const T*>(a.q) + (token * a.heads + kv_head * group + first) * a.head_dim;

  float queries[kGroup][kElements], sums[kGroup][kElements], m[kGroup], s[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    if (g < count) LoadShare<T, kElements>(q + g * a.head_dim, lane, head_dim, queries[g]);
    m[g] = -FLT_MAX;
    s[g] = 0;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (g >= count) queries[g][i] = 0;
      queries[g][i] *= a.scale;
      sums[g][i] = 0;
    }
  }

  const int begin = a.window > 0 && position + 1 > a.window ? position + 1 - static_cast<int>(a.window) : 0;
  const auto seen = [&](int key) { return key >= begin && key <= position; };
  // Where a key of this sequence and head lies in the cache, in elements.
  const auto place = [&](int key) {
    const int64_t slot = static_cast<int64_t>(blocks[key / a.block_size]) * a.block_size + key % a.block_size;
    return slot * row + head_offset;
  };
  const auto add = [&](const float(&key)[kElements], const float(&value)[kElements], bool counts) {
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      if (g >= count) break;
      float dot = 0;
#pragma unroll
      for (int i = 0; i < kElements; ++i) dot += queries[g][i] * key[i];
      dot = TeamSum(dot);  // the whole warp's: every team takes part, whether its key counts or not
      if (!counts) continue;
      const float new_m = fmaxf(m[g], dot);
      const float old_scale = __expf(m[g] - new_m), p = __expf(dot - new_m);
      m[g] = new_m;
      s[g] = s[g] * old_scale + p;
#pragma unroll
      for (int i = 0; i < kElements; ++i) sums[g][i] = sums[g][i] * old_scale + p * value[i];
    }
  };

  __shared__ alignas(16) unsigned char memory[kPipelineBytes];
  const auto* k_cache = static_cast<const T*>(a.k_cache);
  const auto* v_cache = static_cast<const T*>(a.v_cache);
  // All teams of a warp take the same number of turns.
  const int first_key = begin / kTeams * kTeams + team, turns = position / kTeams - begin / kTeams + 1;
  float key[kElements], value[kElements];
  if constexpr (kPiped) {
    Pipeline<T, kElements> pipeline(memory);
    constexpr int kAhead = Pipeline<T, kElements>::kStages - 1;
    const auto start = [&](int turn) {
      const int at = first_key + turn * kTeams;
      const bool wanted = turn < turns && seen(at);
      const int64_t offset = wanted ? place(at) + lane * kElements : 0;
      pipeline.Start(turn, wanted ? k_cache + offset : nullptr, v_cache + offset);
    };
    for (int turn = 0; turn < kAhead; ++turn) start(turn);
    for (int turn = 0; turn < turns; ++turn) {
      pipeline.Wait();
      pipeline.Read(turn, key, value);
      start(turn + kAhead);
      add(key, value, seen(first_key + turn * kTeams));
    }
    __pipeline_wait_prior(0);
  } else {
    for (int turn = 0; turn < turns; ++turn) {
      const int at = first_key + turn * kTeams;
      if (seen(at)) {
        LoadShare<T, kElements>(k_cache + place(at), lane, head_dim, key);
        LoadShare<T, kElements>(v_cache + place(at), lane, head_dim, value);
      }
      add(key, value, seen(at));
    }
  }

  __shared__ float team_m[kTeams], team_s[kTeams];
  // [kTeams, kLanes * kElements], where the pipeline was.
  static_assert(kTeams * kLanes * kElements * sizeof(float) <= kPipelineBytes);
  auto* team_sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    if (g >= count) break;
    __syncthreads();
    if (lane == 0) {
      team_m[team] = m[g];
      team_s[team] = s[g];
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) team_sums[threadIdx.x * kElements + i] = sums[g][i];
    __syncthreads();
    float top = -FLT_MAX, total = 0;
    for (int t = 0; t < kTeams; ++t) top = fmaxf(top, team_m[t]);
    for (int t = 0; t < kTeams; ++t) total += team_s[t] * __expf(team_m[t] - top);
    T* out = static_cast<T*>(a.out) + (token * a.heads + kv_head * group + first + g) * a.head_dim;
    for (int i = threadIdx.x; i < head_dim; i += kThreads) {
      float sum = 0;
      for (int t = 0; t < kTeams; ++t) sum += team_sums[t * kLanes * kElements + i] * __expf(team_m[t] - top);
      out[i] = FromFloat<T>(sum / total);
    }
  }
}

template <typename T, int kElements>
void Launch(const PagedAttentionArguments& a, dim3 grid, cudaStream_t stream) {
  if constexpr (Pipeline<T, kElements>::kUsable) {
    if (a.head_dim == kLanes * kElements && CanPack<T>(a.head_dim, a.k_cache, a.v_cache)) {
      PagedAttentionKernel<T, kElements, true><<<grid, kThreads, 0, stream>>>(a);
      return;
    }
  }
  PagedAttentionKernel<T, kElements, false><<<grid, kThreads, 0, stream>>>(a);
}

}  // namespace

int WriteKvCache(Type type, const void* k, const void* v, void* k_cache, void* v_cache, const int64_t* slots,
                 int64_t tokens, int64_t kv_heads, int64_t head_dim, Stream stream) {
  if (tokens == 0) return cudaSuccess;
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    WriteKvCacheKernel<T><<<static_cast<unsigned>(tokens), 128, 0, AsStream(stream)>>>(
        static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(k_cache), static_cast<T*>(v_cache), slots,
        kv_heads * head_dim);
  });
}

int PagedAttention(Type type, const PagedAttentionArguments& a, Stream stream) {
  if (a.tokens == 0) return cudaSuccess;
  if (a.kv_heads <= 0 || a.heads % a.kv_heads != 0 || a.head_dim <= 0 || a.head_dim > 256 || a.block_size <= 0) {
    return cudaErrorInvalidValue;
  }
  const dim3 grid(static_cast<unsigned>(a.tokens), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>((a.heads / a.kv_heads + kGroup - 1) / kGroup));
  return ForType(type, [&](auto zero) {
    using T = decltype(zero);
    if (a.head_dim <= 16) {
      Launch<T, 2>(a, grid, AsStream(stream));
    } else if (a.head_dim <= 32) {
      Launch<T, 4>(a, grid, AsStream(stream));
    } else if (a.head_dim <= 64) {
      Launch<T, 8>(a, grid, AsStream(stream));
    } else if (a.head_dim <= 128) {
      Launch<T, 16>(a, grid, AsStream(stream));
    } else {
      Launch<T, 32>(a, grid, AsStream(stream));
    }
  });
}

}  // namespace manta::kernels::cuda

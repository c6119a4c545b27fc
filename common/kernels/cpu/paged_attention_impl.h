// Attention of single queries over a paged cache; see paged_attention.h. Compiled once per instruction set.
#pragma once

#include <vector>

#include "common/kernels/cpu/simd.h"
#include "common/kernels/cpu/table.h"
#include "common/kernels/paged_attention.h"

namespace {

using manta::kernels::AttentionShape;
using manta::kernels::PagedCache;
using manta::kernels::PagedTokens;

constexpr int kMostQueries = 4;  // of one kv head that share what is loaded
constexpr int kMostColumns = 4;  // vectors of a value's row that are summed side by side

void StorePagedTokens(const AttentionShape& shape, const PagedTokens& tokens, const float* k, const float* v,
                      const PagedCache& cache) {
  const int64_t dim = shape.head_dim, slot = shape.num_kv_heads * dim;
  const int64_t tiles = (cache.block_size + kLanes - 1) / kLanes, stride = tiles * kLanes * slot;
  for (int64_t t = 0; t < tokens.num_tokens; ++t, k += slot, v += slot) {
    const int64_t block = tokens.blocks[t][tokens.positions[t] / cache.block_size];
    const int64_t at = tokens.positions[t] % cache.block_size;
    float* key = cache.keys + block * stride + at / kLanes * dim * kLanes + at % kLanes;
    for (int64_t h = 0; h < shape.num_kv_heads; ++h, key += tiles * dim * kLanes) {
      for (int64_t d = 0; d < dim; ++d) key[d * kLanes] = k[h * dim + d];
    }
    std::memcpy(cache.values + block * stride + at * slot, v, static_cast<size_t>(slot) * sizeof(float));
  }
}

// A tile of sixteen keys: where it lies in the cache for the first kv head, and where its scores go.
struct PagedTile {
  int64_t offset, score;
};

// One token's view of the cache.
struct PagedQuery {
  const AttentionShape& shape;
  const PagedCache& cache;
  const int32_t* blocks;
  int64_t position, first;  // the positions that are seen: [first, position]
  int64_t begin;            // of the tile that holds `first`: the position of the first score
  int64_t tiles_per_block, stride;  // of a block: tiles of 16 keys, floats
  const PagedTile* tiles;           // [num_tiles] that hold a key that is seen
  int64_t num_tiles;
};

// scores[g][key] = q[g] . key for kTiles tiles. q: heads `dim` apart; keys: at the kv head. Stored in the tiles' order:
// in blocks of fewer than 16 positions a tile's last lanes spill over what the next one writes.
template <int kQueries, int kTiles>
MANTA_INLINE void PagedDots(const float* q, int64_t dim, const float* keys, const PagedTile* tiles, float* scores,
                            int64_t ld) {
  F16 sum[kTiles][kQueries];
  const float* tile[kTiles];
#pragma GCC unroll 4
  for (int t = 0; t < kTiles; ++t) {
    tile[t] = keys + tiles[t].offset;
#pragma GCC unroll 4
    for (int g = 0; g < kQueries; ++g) sum[t][g] = Zero();
  }
  for (int64_t d = 0; d < dim; ++d) {
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      const F16 key = Load(tile[t] + d * kLanes);
#pragma GCC unroll 4
      for (int g = 0; g < kQueries; ++g) sum[t][g] = MulAdd(q[g * dim + d], key, sum[t][g]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTiles; ++t) {
#pragma GCC unroll 4
    for (int g = 0; g < kQueries; ++g) Store(scores + g * ld + tiles[t].score, sum[t][g]);
  }
}

// Scores of kQueries heads of one kv head against every tile with a key that is seen. What lies beyond those holds
// anything.
template <int kQueries>
MANTA_INLINE void PagedScores(const PagedQuery& p, const float* q, int64_t kv_head, float* scores, int64_t ld) {
  // Enough independent sums to hide a multiply-add's latency, and no more than fit the registers.
  constexpr int kTogether = MANTA_VECTOR_BYTES < 64 ? 1 : kQueries <= 2 ? 4 : 2;
  const int64_t dim = p.shape.head_dim;
  const float* keys = p.cache.keys + kv_head * p.tiles_per_block * dim * kLanes;
  int64_t i = 0;
  for (; i + kTogether <= p.num_tiles; i += kTogether) PagedDots<kQueries, kTogether>(q, dim, keys, p.tiles + i, scores, ld);
  for (; i < p.num_tiles; ++i) PagedDots<kQueries, 1>(q, dim, keys, p.tiles + i, scores, ld);
}

// Scores in place to exp(score - max), zero for what is not seen; -> 1 / their sum.
MANTA_INLINE float PagedSoftmax(const PagedQuery& p, float* scores) {
  const int64_t begin = p.begin, count = p.position + 1 - begin;
  const F16 scale = Broadcast(p.shape.scale);
  F16 largest = Broadcast(-__builtin_inff());
  for (int64_t j = 0; j < count; j += kLanes) {
    F16 s = Load(scores + j) * scale;
    if (begin + j < p.first || j + kLanes > count) s = KeepLanes(s, p.first - begin - j, count - j, -__builtin_inff());
    Store(scores + j, s);
    largest = Max(largest, s);
  }
  const F16 shift = Broadcast(MaxLane(largest));
  F16 sum = Zero();
  for (int64_t j = 0; j < count; j += kLanes) {
    const F16 e = Exp(Load(scores + j) - shift);
    Store(scores + j, e);
    sum = sum + e;
  }
  return 1 / Sum(sum);
}

// A vector of a value's row: which kv head's weights it takes, and where it lies.
struct PagedColumn {
  int64_t offset;        // in a value's row
  int64_t left;          // floats of the head from here on
  const float* weights;  // [queries, ld] of its kv head
  const float* factors;  // [queries]
  float* out;            // of the first query's head; the next is head_dim further
};

template <int kColumns, int kQueries>
MANTA_INLINE void PagedMix(const PagedQuery& p, const PagedColumn* columns, int64_t ld) {
  const int64_t bs = p.cache.block_size, slot = p.shape.num_kv_heads * p.shape.head_dim;
  F16 sum[kColumns][kQueries];
  const float* weights[kColumns];
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
    weights[c] = columns[c].weights + (p.first - p.begin);
#pragma GCC unroll 4
    for (int g = 0; g < kQueries; ++g) sum[c][g] = Zero();
  }
  for (int64_t at = p.first; at <= p.position;) {
    const float* row = p.cache.values + p.blocks[at / bs] * p.stride + at % bs * slot;
    const int64_t rest = bs - at % bs, end = p.position + 1 - at < rest ? p.position + 1 : at + rest;
    for (; at < end; ++at, row += slot) {
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        const F16 value = LoadPart(row + columns[c].offset, columns[c].left);
#pragma GCC unroll 4
        for (int g = 0; g < kQueries; ++g) sum[c][g] = MulAdd(weights[c][g * ld], value, sum[c][g]);
        ++weights[c];
      }
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 4
    for (int g = 0; g < kQueries; ++g) {
      StorePart(columns[c].out + g * p.shape.head_dim, sum[c][g] * Broadcast(columns[c].factors[g]), columns[c].left);
    }
  }
}

// Some query heads (the same number of each kv head) of the kv heads [kv_begin, kv_end).
template <int kQueries>
void PagedHeads(const PagedQuery& p, const float* q, int64_t kv_begin, int64_t kv_end, int64_t first_query, float* out,
                float* scores, int64_t ld) {
  const int64_t dim = p.shape.head_dim, group = p.shape.num_heads / p.shape.num_kv_heads;
  float factors[kMostColumns][kQueries];
  PagedColumn columns[kMostColumns];
  for (int64_t h = kv_begin; h < kv_end; ++h) {
    float* rows = scores + (h - kv_begin) * kQueries * ld;
    PagedScores<kQueries>(p, q + (h * group + first_query) * dim, h, rows, ld);
    for (int g = 0; g < kQueries; ++g) factors[h - kv_begin][g] = PagedSoftmax(p, rows + g * ld);
  }
  int count = 0;
  for (int64_t h = kv_begin; h < kv_end; ++h) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      columns[count++] = {h * dim + d, dim - d, scores + (h - kv_begin) * kQueries * ld, factors[h - kv_begin],
                          out + (h * group + first_query) * dim + d};
      if (count == kMostColumns) {
        PagedMix<kMostColumns, kQueries>(p, columns, ld);
        count = 0;
      }
    }
  }
  if (count == 3) PagedMix<3, kQueries>(p, columns, ld);
  if (count == 2) PagedMix<2, kQueries>(p, columns, ld);
  if (count == 1) PagedMix<1, kQueries>(p, columns, ld);
}

void AttendPagedTokens(const AttentionShape& shape, const PagedTokens& tokens, const float* q, const PagedCache& cache,
                       float* out) {
  thread_local std::vector<float> scratch;
  thread_local std::vector<PagedTile> tiles;
  const int64_t dim = shape.head_dim, row = shape.num_heads * dim, group = shape.num_heads / shape.num_kv_heads;
  const int64_t tiles_per_block = (cache.block_size + kLanes - 1) / kLanes;
  const int64_t stride = tiles_per_block * kLanes * shape.num_kv_heads * dim;
  const int64_t vectors = (dim + kLanes - 1) / kLanes;
  const int64_t together = vectors >= kMostColumns ? 1 : kMostColumns / vectors;  // kv heads whose values are summed at once
  for (int64_t t = 0; t < tokens.num_tokens; ++t, q += row, out += row) {
    const int64_t position = tokens.positions[t];
    const int64_t first = shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
    const int64_t begin = first - first % cache.block_size % kLanes;
    tiles.clear();
    for (int64_t at = begin; at <= position;) {
      const int64_t in_block = at % cache.block_size, rest = cache.block_size - in_block;
      tiles.push_back({tokens.blocks[t][at / cache.block_size] * stride + in_block / kLanes * dim * kLanes, at - begin});
      at += rest < kLanes ? rest : kLanes;
    }
    const PagedQuery p{shape, cache,        tokens.blocks[t], position,
                       first, begin,        tiles_per_block,  stride,
                       tiles.data(), static_cast<int64_t>(tiles.size())};
    // A tile before and one after what is seen: scores are stored by whole tiles.
    const int64_t ld = (position - first + 1 + 2 * kLanes) / kLanes * kLanes + kLanes;
    if (static_cast<int64_t>(scratch.size()) < ld * kMostQueries * kMostColumns) {
      scratch.resize(static_cast<size_t>(ld * kMostQueries * kMostColumns));
    }
    for (int64_t kv = 0; kv < shape.num_kv_heads; kv += together) {
      const int64_t kv_end = kv + together < shape.num_kv_heads ? kv + together : shape.num_kv_heads;
      for (int64_t g = 0; g < group;) {
        float* scores = scratch.data();
        switch (group - g < kMostQueries ? group - g : kMostQueries) {
          case 1:
            PagedHeads<1>(p, q, kv, kv_end, g, out, scores, ld);
            g += 1;
            break;
          case 2:
            PagedHeads<2>(p, q, kv, kv_end, g, out, scores, ld);
            g += 2;
            break;
          case 3:
            PagedHeads<3>(p, q, kv, kv_end, g, out, scores, ld);
            g += 3;
            break;
          default:
            PagedHeads<4>(p, q, kv, kv_end, g, out, scores, ld);
            g += 4;
        }
      }
    }
  }
}

}  // namespace

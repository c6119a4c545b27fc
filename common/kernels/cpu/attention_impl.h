// Attention of one kv head over one sequence; see attention.h. Compiled once per instruction set. Queries are those of
// the sequence's own rows: the positions from h.first_query on.
//
// Keys are transposed once into tiles of 16: then a tile's scores are a vector, and no sum crosses lanes. Four queries
// share what is loaded. Keys that a query does not see get weight 0, which changes no sum.
#pragma once

#include "common/kernels/cpu/simd.h"
#include "common/kernels/cpu/table.h"

namespace {

using manta::kernels::cpu::AttentionHead;

constexpr int64_t kQueries = 4;

// x [tokens, dim] -> [ceil(tokens / 16), dim, 16], zeros beyond.
void TransposeTiles(int64_t tokens, int64_t dim, const float* x, int64_t stride, float* tiles) {
  for (int64_t t = 0; t < tokens; t += kLanes, tiles += dim * kLanes) {
    const float* row = x + t * stride;
    const int64_t rows = tokens - t < kLanes ? tokens - t : kLanes, whole = rows / 4 * 4;
    if (rows < kLanes) std::memset(tiles, 0, static_cast<size_t>(dim * kLanes) * sizeof(float));
    int64_t d = 0;
    for (; d + 4 <= dim; d += 4) {
      for (int64_t j = 0; j < whole; j += 4) Transpose4(row + j * stride + d, stride, tiles + d * kLanes + j, kLanes);
    }
    for (int64_t j = 0; j < rows; ++j) {  // what the blocks of four left over
      for (int64_t e = j < whole ? d : 0; e < dim; ++e) tiles[e * kLanes + j] = row[j * stride + e];
    }
  }
}

// The rows of a block of queries: where they are, and which keys they see.
struct QueryBlock {
  int64_t first, count;          // queries
  int64_t tile_begin, tile_end;  // keys that any of them sees, in tiles
  int64_t KeyEnd() const { return first + count; }
};

MANTA_INLINE QueryBlock MakeBlock(const AttentionHead& h, int64_t first) {
  QueryBlock b;
  b.first = first;
  b.count = h.tokens - first < kQueries ? h.tokens - first : kQueries;
  const int64_t oldest = h.shape.window > 0 && first >= h.shape.window ? first - h.shape.window + 1 : 0;
  b.tile_begin = oldest / kLanes;
  b.tile_end = (b.KeyEnd() + kLanes - 1) / kLanes;
  return b;
}

// out[r][key] = rows[r] . keys[key], for the block's tiles; rows `stride` apart, rows of out `ld`.
void DotTiles(const QueryBlock& b, int64_t dim, const float* rows, int64_t stride, const float* tiles, float* out,
              int64_t ld) {
  const float* row[kQueries];
  for (int64_t r = 0; r < kQueries; ++r) row[r] = rows + (r < b.count ? r : 0) * stride;
  int64_t t = b.tile_begin;
  if constexpr (MANTA_VECTOR_BYTES == 64) {
    for (; t + 2 <= b.tile_end; t += 2) {  // two tiles: enough independent sums to hide a multiply-add's latency
      const float* tile = tiles + t * dim * kLanes;
      const float* next = tile + dim * kLanes;
      F16 s[kQueries][2] = {{Zero(), Zero()}, {Zero(), Zero()}, {Zero(), Zero()}, {Zero(), Zero()}};
      for (int64_t d = 0; d < dim; ++d) {
        const F16 key = Load(tile + d * kLanes), other = Load(next + d * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < kQueries; ++r) {
          s[r][0] = MulAdd(row[r][d], key, s[r][0]);
          s[r][1] = MulAdd(row[r][d], other, s[r][1]);
        }
      }
      for (int r = 0; r < kQueries; ++r) {
        Store(out + r * ld + t * kLanes, s[r][0]);
        Store(out + r * ld + (t + 1) * kLanes, s[r][1]);
      }
    }
  }
  for (; t < b.tile_end; ++t) {
    const float* tile = tiles + t * dim * kLanes;
    F16 s[kQueries] = {Zero(), Zero(), Zero(), Zero()};
    for (int64_t d = 0; d < dim; ++d) {
      const F16 key = Load(tile + d * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kQueries; ++r) s[r] = MulAdd(row[r][d], key, s[r]);
    }
    for (int r = 0; r < kQueries; ++r) Store(out + r * ld + t * kLanes, s[r]);
  }
}

// Scales, and hides what the query at `position` does not see.
void MaskScores(const AttentionHead& h, const QueryBlock& b, int64_t position, float* scores) {
  const int64_t begin = b.tile_begin * kLanes, end = b.tile_end * kLanes;
  const int64_t oldest = h.shape.window > 0 && position >= h.shape.window ? position - h.shape.window + 1 : 0;
  const F16 scale = Broadcast(h.shape.scale);
  for (int64_t j = begin; j < end; j += kLanes) {
    F16 s = Load(scores + j) * scale;
    if (j < oldest || j + kLanes > position + 1) s = KeepLanes(s, oldest - j, position + 1 - j, -__builtin_inff());
    Store(scores + j, s);
  }
}

// out[r] (+)= sum over keys of weights[r][key] x[key], times factor[r].
template <int kVectors>
MANTA_INLINE void MixColumns(const QueryBlock& b, const float* weights, int64_t ld, const float* x, int64_t x_stride,
                             int64_t column, int64_t columns, const float* factor, float* out, int64_t out_stride) {
  F16 sum[kQueries][kVectors];
  for (int r = 0; r < kQueries; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Zero();
  }
  for (int64_t j = b.tile_begin * kLanes; j < b.KeyEnd(); ++j) {
    const float* row = x + j * x_stride + column;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const F16 value = kVectors == 1 ? LoadPart(row, columns) : Load(row + v * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kQueries; ++r) sum[r][v] = MulAdd(weights[r * ld + j], value, sum[r][v]);
    }
  }
  for (int64_t r = 0; r < b.count; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      StorePart(out + r * out_stride + column + v * kLanes, sum[r][v] * Broadcast(factor[r]),
                kVectors == 1 ? columns : kLanes);
    }
  }
}

void Mix(const QueryBlock& b, int64_t dim, const float* weights, int64_t ld, const float* x, int64_t x_stride,
         const float* factor, float* out, int64_t out_stride) {
  constexpr int kWide = MANTA_VECTOR_BYTES == 64 ? 4 : 2;
  int64_t column = 0;
  for (; column + kWide * kLanes <= dim; column += kWide * kLanes) {
    MixColumns<kWide>(b, weights, ld, x, x_stride, column, kWide * kLanes, factor, out, out_stride);
  }
  for (; column < dim; column += kLanes) {
    MixColumns<1>(b, weights, ld, x, x_stride, column, dim - column < kLanes ? dim - column : kLanes, factor, out,
                  out_stride);
  }
}

// out[key] += sum over the block's rows of weights[r][key] rows[r].
void Scatter(const QueryBlock& b, int64_t dim, const float* weights, int64_t ld, const float* rows, int64_t stride,
             float* out, int64_t out_stride) {
  const int64_t begin = b.tile_begin * kLanes;
  for (int64_t column = 0; column < dim; column += kLanes) {
    const int64_t left = dim - column;
    F16 row[kQueries];
    for (int64_t r = 0; r < kQueries; ++r) row[r] = r < b.count ? LoadPart(rows + r * stride + column, left) : Zero();
    for (int64_t j = begin; j < b.KeyEnd(); ++j) {
      float* o = out + j * out_stride + column;
      F16 sum = LoadPart(o, left);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kQueries; ++r) sum = MulAdd(weights[r * ld + j], row[r], sum);
      StorePart(o, sum, left);
    }
  }
}

void AttentionForwardHead(const AttentionHead& h) {
  const int64_t dim = h.shape.head_dim, group = h.shape.num_heads / h.shape.num_kv_heads;
  const int64_t padded = (h.tokens + kLanes - 1) / kLanes * kLanes;
  float* keys = h.scratch;
  float* scores = keys + 2 * padded * dim;
  TransposeTiles(h.tokens, dim, h.k, h.kv_stride, keys);
  for (int64_t g = 0; g < group; ++g) {
    for (int64_t first = h.first_query; first < h.tokens; first += kQueries) {
      const QueryBlock b = MakeBlock(h, first);
      const int64_t own = first - h.first_query, at = own * h.q_stride + g * dim;
      DotTiles(b, dim, h.q + at, h.q_stride, keys, scores, padded);
      float factor[kQueries] = {};
      for (int64_t r = 0; r < b.count; ++r) {
        float* row = scores + r * padded;
        MaskScores(h, b, first + r, row);
        F16 largest = Load(row + b.tile_begin * kLanes);
        for (int64_t t = b.tile_begin; t < b.tile_end; ++t) largest = Max(largest, Load(row + t * kLanes));
        const float max = MaxLane(largest);
        const F16 shift = Broadcast(max);
        F16 sum = Zero();
        for (int64_t t = b.tile_begin; t < b.tile_end; ++t) {
          const F16 p = Exp(Load(row + t * kLanes) - shift);
          Store(row + t * kLanes, p);
          sum = sum + p;
        }
        const float total = Sum(sum);
        factor[r] = 1 / total;
        if (h.lse != nullptr) h.lse[(own + r) * h.shape.num_heads + g] = max + __builtin_logf(total);
      }
      Mix(b, dim, scores, padded, h.v, h.kv_stride, factor, h.out + at, h.q_stride);
    }
  }
}

// Adds to d_k and d_v, writes d_q. dV = P^T dO; dP = dO V^T; dS = P (dP - rowsum(dO O)); dQ = dS K scale; dK = dS^T Q
// scale.
void AttentionBackwardHead(const AttentionHead& h) {
  const int64_t dim = h.shape.head_dim, group = h.shape.num_heads / h.shape.num_kv_heads;
  const int64_t padded = (h.tokens + kLanes - 1) / kLanes * kLanes;
  float* keys = h.scratch;
  float* values = keys + padded * dim;
  float* p = values + padded * dim;
  float* d_p = p + kQueries * padded;
  TransposeTiles(h.tokens, dim, h.k, h.kv_stride, keys);
  TransposeTiles(h.tokens, dim, h.v, h.kv_stride, values);
  const float ones[kQueries] = {1, 1, 1, 1};
  for (int64_t g = 0; g < group; ++g) {
    for (int64_t first = h.first_query; first < h.tokens; first += kQueries) {
      const QueryBlock b = MakeBlock(h, first);
      const int64_t own = first - h.first_query, at = own * h.q_stride + g * dim;
      DotTiles(b, dim, h.q + at, h.q_stride, keys, p, padded);
      DotTiles(b, dim, h.d_out + at, h.q_stride, values, d_p, padded);
      for (int64_t r = 0; r < kQueries; ++r) {
        float* p_row = p + r * padded;
        float* d_row = d_p + r * padded;
        if (r >= b.count) {  // rows that are not there weigh nothing
          for (int64_t j = b.tile_begin * kLanes; j < b.tile_end * kLanes; ++j) p_row[j] = d_row[j] = 0;
          continue;
        }
        MaskScores(h, b, first + r, p_row);
        F16 dot = Zero();
        for (int64_t d = 0; d < dim; d += kLanes) {
          dot = MulAdd(LoadPart(h.d_out + at + r * h.q_stride + d, dim - d),
                       LoadPart(h.out + at + r * h.q_stride + d, dim - d), dot);
        }
        const F16 delta = Broadcast(Sum(dot)), scale = Broadcast(h.shape.scale);
        const F16 shift = Broadcast(h.lse[(own + r) * h.shape.num_heads + g]);
        for (int64_t t = b.tile_begin; t < b.tile_end; ++t) {
          const F16 weight = Exp(Load(p_row + t * kLanes) - shift);
          Store(p_row + t * kLanes, weight);
          Store(d_row + t * kLanes, weight * (Load(d_row + t * kLanes) - delta) * scale);
        }
      }
      Mix(b, dim, d_p, padded, h.k, h.kv_stride, ones, h.d_q + at, h.q_stride);
      Scatter(b, dim, d_p, padded, h.q + at, h.q_stride, h.d_k, h.kv_stride);
      Scatter(b, dim, p, padded, h.d_out + at, h.q_stride, h.d_v, h.kv_stride);
    }
  }
}

}  // namespace

// The matrix product's inner loops; see gemm.h. Compiled once per instruction set.
#pragma once

#include "common/kernels/cpu/simd.h"
#include "common/kernels/cpu/table.h"

namespace {

using manta::kernels::kBlockK;
using manta::kernels::kPanel;
using manta::kernels::MatrixView;

// Rows of the largest tile: two vectors of each must fit the registers beside a row of b.
constexpr int kMaxRows = MANTA_VECTOR_BYTES == 64 ? 12 : MANTA_VECTOR_BYTES == 32 ? 3 : 1;
constexpr int64_t kGroup = 8;  // panels that a tile of a is multiplied by in turn

struct Tile {
  int64_t k;
  const float* a;
  int64_t a_row, a_col;
  const float* b;  // [panels][k][kPanel], panels b_panel apart
  int64_t b_panel;
  const float* bias;  // of the first column; null: none
  bool add;           // to what y holds
  float* y;
  int64_t ldy, columns;  // columns of y that exist, from the first panel's first
};

// rows x (panels * 32) elements: one accumulator each, over k in order.
template <int kRows, int kPanels>
void ComputeTile(const Tile& t) {
  constexpr int kVectors = 2 * kPanels;
  F16 sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Zero();
  }
  const float* a = t.a;
  const float* b = t.b;
  for (int64_t p = 0; p < t.k; ++p) {
    F16 row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = Load(b + (v / 2) * t.b_panel + (v % 2) * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r * t.a_row];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = MulAdd(x, row[v], sum[r][v]);
    }
    a += t.a_col;
    b += kPanel;
  }
  for (int v = 0; v < kVectors; ++v) {
    const int64_t left = t.columns - v * kLanes;
    if (left <= 0) break;
    for (int r = 0; r < kRows; ++r) {
      float* y = t.y + r * t.ldy + v * kLanes;
      F16 result = sum[r][v];
      if (t.add) result = result + LoadPart(y, left);
      if (t.bias != nullptr) result = result + LoadPart(t.bias + v * kLanes, left);
      StorePart(y, result, left);
    }
  }
}

// Few rows take several panels at once: enough independent sums to hide the latency of multiply-add.
constexpr int PanelsFor(int rows) {
  return kMaxRows == 1 ? 1 : rows == 1 ? 4 : rows <= kMaxRows / 2 ? 2 : 1;
}

void ComputeRows(int rows, const Tile& t) {
  switch (rows) {
#define MANTA_ROWS(n)                                             \
  case n:                                                         \
    if constexpr (n <= kMaxRows) ComputeTile<n, PanelsFor(n)>(t); \
    break;
    MANTA_ROWS(1)
    MANTA_ROWS(2)
    MANTA_ROWS(3)
    MANTA_ROWS(4)
    MANTA_ROWS(5)
    MANTA_ROWS(6)
    MANTA_ROWS(7)
    MANTA_ROWS(8)
    MANTA_ROWS(9)
    MANTA_ROWS(10)
    MANTA_ROWS(11)
    MANTA_ROWS(12)
#undef MANTA_ROWS
    default:
      break;
  }
}

// The same for a single panel.
void ComputeRest(int rows, const Tile& t) {
  switch (rows) {
#define MANTA_ROWS(n)                                  \
  case n:                                              \
    if constexpr (n <= kMaxRows) ComputeTile<n, 1>(t); \
    break;
    MANTA_ROWS(1)
    MANTA_ROWS(2)
    MANTA_ROWS(3)
    MANTA_ROWS(4)
    MANTA_ROWS(5)
    MANTA_ROWS(6)
#undef MANTA_ROWS
    default:
      break;
  }
}

void PackPanel(MatrixView b, int64_t panel, int64_t n, int64_t k_begin, int64_t k_end, float* out) {
  const int64_t column = panel * kPanel, columns = n - column < kPanel ? n - column : kPanel;
  const float* from = b.data + column * b.col_stride + k_begin * b.row_stride;
  const int64_t k = k_end - k_begin;
  if (b.col_stride == 1) {
    for (int64_t p = 0; p < k; ++p) {
      const float* src = from + p * b.row_stride;
      float* dst = out + p * kPanel;
      if (columns == kPanel) {
        Store(dst, Load(src));
        Store(dst + kLanes, Load(src + kLanes));
      } else {
        for (int64_t j = 0; j < kPanel; ++j) dst[j] = j < columns ? src[j] : 0;
      }
    }
    return;
  }
  int64_t p = 0;
  if (b.row_stride == 1 && columns == kPanel) {
    for (; p + 4 <= k; p += 4) {
      for (int64_t j = 0; j < kPanel; j += 4)
        Transpose4(from + j * b.col_stride + p, b.col_stride, out + p * kPanel + j, kPanel);
    }
  }
  for (; p < k; ++p) {
    for (int64_t j = 0; j < kPanel; ++j)
      out[p * kPanel + j] = j < columns ? from[j * b.col_stride + p * b.row_stride] : 0;
  }
}

void GemmColumns(int64_t m, int64_t n_begin, int64_t n_end, int64_t k, MatrixView a, MatrixView b, const float* packed,
                 const float* bias, bool accumulate, float* y, int64_t ldy) {
  alignas(64) thread_local float buffer[kGroup * kBlockK * kPanel];
  alignas(64) thread_local float tile_buffer[kBlockK * kLanes];
  const int64_t tiles = (m + kMaxRows - 1) / kMaxRows;
  for (int64_t column = n_begin; column < n_end; column += kGroup * kPanel) {
    const int64_t columns = n_end - column < kGroup * kPanel ? n_end - column : kGroup * kPanel;
    const int64_t panels = (columns + kPanel - 1) / kPanel;
    for (int64_t k_begin = 0; k_begin < k || k_begin == 0; k_begin += kBlockK) {
      const int64_t k_end = k - k_begin < kBlockK ? k : k_begin + kBlockK;
      Tile tile{};
      tile.k = k_end - k_begin;
      tile.a_row = a.row_stride;
      tile.a_col = a.col_stride;
      tile.add = accumulate || k_begin > 0;
      tile.ldy = ldy;
      const float* block = buffer;
      tile.b_panel = tile.k * kPanel;
      if (packed != nullptr) {
        block = packed + (column * k + k_begin * kPanel);
        tile.b_panel = k * kPanel;
      } else {
        for (int64_t i = 0; i < panels; ++i) {
          PackPanel(b, column / kPanel + i, n_end, k_begin, k_end, buffer + i * tile.b_panel);
        }
      }
      // Tiles of nearly equal height, rather than full ones and a rest.
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = m * t / tiles, rows = m * (t + 1) / tiles - first;
        tile.a = a.data + first * a.row_stride + k_begin * a.col_stride;
        if (a.col_stride != 1) {
          // A transposed operand: its columns lie far apart, and every panel would walk over them again.
          const bool whole = a.row_stride == 1 && first + kLanes <= m;
          for (int64_t p = 0; p < tile.k; ++p) {
            const float* column_p = tile.a + p * a.col_stride;
            if (whole) {
              Store(tile_buffer + p * kLanes, Load(column_p));
              continue;
            }
            for (int64_t r = 0; r < rows; ++r) tile_buffer[p * kLanes + r] = column_p[r * a.row_stride];
          }
          tile.a = tile_buffer;
          tile.a_row = 1;
          tile.a_col = kLanes;
        }
        const int step = PanelsFor(static_cast<int>(rows));
        int64_t i = 0;
        while (i < panels) {
          tile.b = block + i * tile.b_panel;
          tile.bias = bias == nullptr || k_begin > 0 ? nullptr : bias + column + i * kPanel;
          tile.y = y + first * ldy + column + i * kPanel;
          tile.columns = columns - i * kPanel;
          if (i + step <= panels) {
            ComputeRows(static_cast<int>(rows), tile);
            i += step;
          } else {
            // The last panels, fewer than the tile takes: one at a time, in the same order of sums.
            tile.columns = tile.columns < kPanel ? tile.columns : kPanel;
            ComputeRest(static_cast<int>(rows), tile);
            ++i;
          }
        }
      }
    }
  }
}

}  // namespace

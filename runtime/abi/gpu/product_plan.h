// What a kernel is given to multiply (product.h, activation.h, weight_grad.h). Values, made by the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi/gpu/matrix.h"
#include "runtime/base/enums.h"

namespace sluice::gpu {

inline constexpr int kTileRows = 128;   // of a tile of the kernel, and of a box of `a`
inline constexpr int kStoredRows = 64;  // of a box of results

// What becomes of the sums: `out` itself; act of the sums gate and up, of which a tile has kColumns / 2
// columns; or the gradient of gate_up, of the sums that are the gradient of act. With an activation, act has
// `inter` columns; gate_up and its gradient have the columns of gate and then the columns of up. An
// activation without a gate has kColumns columns of act in a tile, and gate_up has `inter` columns.
enum class ProductKind : uint8_t { kPlain = 0, kActivation = 1, kActivationGrad = 2 };

struct Product {
  uint16_t a, weight, out;  // matrices
  Major weightMajor;        // kMn: [K,N], kK: [N,K]
  int32_t firstRow, rows;   // of a and out; 1 to 128 rows
  int32_t expert;
  int32_t firstColumn,
      endColumn;  // of out; with an activation of act. Columns that a tile has beyond are not stored
  int32_t k;
  ProductKind kind = ProductKind::kPlain;
  uint16_t gateUp = kNoMatrix;       // kActivation: stored, if given; kActivationGrad: read
  uint16_t weightedAct = kNoMatrix;  // kActivationGrad: act times rowWeight, stored if given
  // Gathered rows: row i of the task, i from 0 on, is row rowIndex[firstRow + i] / divisor of `a`, or 0 where
  // the index is below 0; the map of `a` is then not used. Null: none.
  const int32_t* rowIndex = nullptr;
  int32_t divisor = 1;
  float alpha = 1;  // the sums are multiplied by it before all else
  // bf16, of the expert, added to the sums in fp32: of kPlain as many as out has columns, of kActivation as
  // gate_up has; null: none. kActivationGrad has none.
  const uint16_t* bias = nullptr;
  ActivationKind activation = ActivationKind::kSwiglu;
  float limit = 0;  // of an activation that has one
  // kActivationGrad has these, by absolute row; null: none. The weight multiplies the gradient of act where
  // that goes on to gate_up, and weightedAct. Its gradient is the sum over all columns of act of act's
  // gradient times act. Products of one row's tiles are in one lane, and all but the first add to it.
  const float* rowWeight = nullptr;
  float* rowWeightGrad = nullptr;
  bool addsRowWeightGrad = false;
};

enum class GradForm : uint8_t {
  kFp32 = 0,       // written
  kFp32Added = 1,  // to what is there
  kBf16 = 2,       // written
  kBf16Added = 3,  // to what is there, in fp32
};

// A tile of a weight gradient (weight_grad.h). The matrices `a` and `dy` have only the expert's rows, in
// boxes of 64 rows and 64 columns; without rows, their maps have any one row, which is not read. The map of
// `out` [experts, k, n] has boxes of 64 rows and 128 bytes.
struct WeightGrad {
  uint16_t a, dy, out;  // matrices
  GradForm form;
  int32_t rows;  // of the expert, may be 0
  int32_t expert;
  int32_t firstRow, endRow, firstColumn, endColumn;  // of out; what a tile has beyond is not stored
  float alpha = 1;                                   // the sums are multiplied by it
  // Gathered operands have a matrix that is not of the expert: row i is row index[i] / divisor there. Null:
  // it is not gathered.
  const int32_t* aIndex = nullptr;
  const int32_t* dyIndex = nullptr;
  int32_t divisor = 1;
};

}  // namespace sluice::gpu

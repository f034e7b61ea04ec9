// What a kernel is given to multiply (product.h, activation.h, weight_grad.h). Values, made by the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/gpu/tensor_map.h"

namespace sluice::gpu {

// A matrix in global memory, as the operand that its map's box is for: `a` 128 rows, a weight [K,N] 64 rows,
// a weight [N,K] half of kColumns rows, what is stored 16 rows; 64 columns each. Weights and `a` only use the
// map, and gate_up of a gradient only the other members. Those of a WeightGrad are described there.
struct Matrix {
  TensorMap map;
  std::byte* data;
  int64_t rowPitch;  // bytes, a multiple of 16
  int32_t columns;
};

inline constexpr uint16_t kNoMatrix = 0xffff;

// What becomes of the sums: `out` itself; act of the sums gate and up, of which a tile has kColumns / 2
// columns; or the gradient of gate_up, of the sums that are the gradient of act. Of those with an activation,
// act has `inter` columns, gate_up and its gradient have those of gate and then those of up.
enum class ProductKind : uint8_t { kPlain = 0, kActivation = 1, kActivationGrad = 2 };

struct Product {
  uint16_t a, weight, out;  // matrices
  Major weightMajor;        // kMn: [K,N], kK: [N,K]
  int32_t firstRow, rows;   // of a and out; 1 to 128 rows
  int32_t expert;
  int32_t firstColumn;  // of out; with an activation of act
  int32_t k;
  ProductKind kind = ProductKind::kPlain;
  uint16_t gateUp = kNoMatrix;  // kActivation: stored, if given; kActivationGrad: read
  uint16_t act = kNoMatrix;     // kActivationGrad: stored again, if given
};

enum class GradForm : uint8_t {
  kFp32 = 0,       // written
  kFp32Added = 1,  // to what is there
  kBf16 = 2,       // written
};

// A tile of a weight gradient (weight_grad.h). The maps of `a` and `dy` have only the expert's rows, in boxes
// of 64 rows and 64 columns; without rows, any one row, which is not read. The map of `out` [experts, k, n]
// has boxes of 64 rows and 128 bytes.
struct WeightGrad {
  uint16_t a, dy, out;  // matrices
  GradForm form;
  int32_t rows;  // of the expert, may be 0
  int32_t expert;
  int32_t firstRow, firstColumn;  // of out
};

}  // namespace sluice::gpu

// Programs of linear layers that ranks share, forward and backward, made by hand: entries without expert ids,
// inputs and outputs of rows, biases, column sums and a row dot.
//
// buildLinearProgram() gives a program that verify() accepts. Free function on values.
#pragma once

#include <cstdint>

#include "runtime/program/program.h"

namespace sluice {

struct LinearShape {
  bool column = true;  // column parallel; else row parallel
  int32_t ranks = 2;
  bool sameTokens = false;
  int32_t in = 20;  // columns of this rank: of the input, and of the output
  int32_t out = 6;
  int32_t maxTokens = 40;
  int32_t cores = 2;
  int32_t window = 2;
  int32_t slotRows = 16;
  int32_t tokenSlot = 7;
  int32_t tileN = 8;
  int32_t tileM = 8;
};

// Tensors as in graphs/linear: x, weight [1, in, out], bias, y, dy, dx, weight_grad and bias_grad; and "dots"
// [R], the products of the rows of dy with the bias, of a column-parallel layer.
TaskProgram buildLinearProgram(const LinearShape& shape);

}  // namespace sluice

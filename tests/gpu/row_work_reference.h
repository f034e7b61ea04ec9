// What work on rows gives, by the references of the CPU's ops: the operands of each op, and its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/abi/gpu/row_plan.h"
#include "runtime/base/enums.h"
#include "tests/gpu/host_rows.h"

namespace sluice::gpu {

struct RowWorkSizes {
  RowOp op;
  int rows, columns;
  int topK = 1, parts = 1;
  bool isFp32 = false, accumulates = false;
  bool hasWeights = true;  // or scales, addends
  bool hasLast = true;     // bias, or the gradient of weights
  bool givesAct = true;    // weighted, with the gradient of an activation
  bool onlyCopies = false;
  ActivationKind kind = ActivationKind::kSwiglu;
};

inline constexpr float kActivationLimit = 0.5F;
inline float effectiveAlpha(const RowWorkSizes& sizes) { return sizes.rows % 3 == 0 ? 1 : -1.25F; }
inline int partRowsOf(const RowWorkSizes& sizes) { return sizes.rows * sizes.topK + 2; }

// An operand of the op; no columns: null.
struct OperandShape {
  int elementBytes, rows, columns;
  int step;  // rows that a row of the task counts; 0: all tasks have the first
};
std::vector<OperandShape> inputsOf(const RowWorkSizes& sizes);
std::vector<OperandShape> outputsOf(const RowWorkSizes& sizes);

// The numbers of all outputs, not rounded. The first output begins as `start`.
std::vector<std::vector<double>> collectResults(const RowWorkSizes& sizes,
                                                const std::vector<HostRows*>& inputs,
                                                const std::vector<int32_t>& positions, HostRows& start);

// Compares output `number`; empty: nothing is wrong. All sums in cases are exact, only activations are not.
std::string firstWrongResult(const RowWorkSizes& sizes, size_t number, const HostRows& found,
                             const std::vector<double>& wanted);

}  // namespace sluice::gpu

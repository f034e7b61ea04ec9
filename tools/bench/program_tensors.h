// The tensors of a program that its caller owns, and their shapes. Free functions of values.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/program/program.h"

namespace sluice::tools {

// Whether the caller owns the buffer in any program: all inputs, and outputs that have no extent rows.
inline bool isCallers(const Buffer& buffer) {
  return buffer.role == Role::kInput ||
         (buffer.role == Role::kOutput && buffer.shape.front().extent != Extent::kRows);
}

// The shape at rank `rank`, with one pair per row.
inline std::vector<int64_t> shapeOf(const TaskProgram& program, const Buffer& buffer, int rank,
                                    int64_t tokens, int64_t rows) {
  std::vector<int64_t> shape;
  for (const Dim& dim : buffer.shape)
    shape.push_back(dim.extent == Extent::kPairs ? rows : program.sizeAt(rank, dim, tokens, rows));
  return shape;
}

}  // namespace sluice::tools

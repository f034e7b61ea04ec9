// SwiGLU of rows in fp32, for peers that compute in fp32: Sluice's own kernels take bf16.
//
// Free functions; any thread. `gateUp` and its gradient are [rows, 2 * inter], gate then up, the others
// [rows, inter], all contiguous.
#pragma once

#include <cstdint>

namespace sluice::tools {

void swiglu(const float* gateUp, float* act, int64_t rows, int64_t inter);
void swigluGrad(const float* actGrad, const float* gateUp, float* gateUpGrad, int64_t rows, int64_t inter);

}  // namespace sluice::tools

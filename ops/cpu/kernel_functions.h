// The kernels of each instruction set by name, for the tables of select.cc and for tests.
//
// A namespace has only the kernels that are compiled for it: the AVX-512 and AMX sets take the others from
// the sets before them. amx_emulated is the source of amx on a software tile unit; only tests link it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/abi/kernels.h"

namespace sluice::ops {

// Of the kernels of every set below.
inline constexpr ProductTypes kGmmTypes[] = {{DType::kBF16, DType::kBF16, DType::kBF16}};
inline constexpr ProductTypes kWeightGradTypes[] = {{DType::kBF16, DType::kBF16, DType::kF32},
                                                    {DType::kBF16, DType::kBF16, DType::kBF16}};

namespace portable {
void gmm(const GmmArgs& args);
void packWeight(const PackWeightArgs& args);
void gmmWeightGrad(const GmmWeightGradArgs& args);
void activation(const ActivationArgs& args);
void activationGrad(const ActivationGradArgs& args);
void gatherRows(const GatherRowsArgs& args);
void weightedSum(const WeightedSumArgs& args);
void add(const AddArgs& args);
void scale(const ScaleArgs& args);
size_t gmmScratchBytes(int32_t n, int32_t k);
size_t packedWeightBytes(int32_t n, int32_t k);
size_t weightGradScratchBytes(int32_t m, int32_t n);
}  // namespace portable

namespace avx2 {
void gmm(const GmmArgs& args);
void packWeight(const PackWeightArgs& args);
void gmmWeightGrad(const GmmWeightGradArgs& args);
void activation(const ActivationArgs& args);
void activationGrad(const ActivationGradArgs& args);
void weightedSum(const WeightedSumArgs& args);
void add(const AddArgs& args);
void scale(const ScaleArgs& args);
size_t gmmScratchBytes(int32_t n, int32_t k);
size_t packedWeightBytes(int32_t n, int32_t k);
size_t weightGradScratchBytes(int32_t m, int32_t n);
}  // namespace avx2

namespace avx512 {
void gmm(const GmmArgs& args);
void packWeight(const PackWeightArgs& args);
void gmmWeightGrad(const GmmWeightGradArgs& args);
void activation(const ActivationArgs& args);
void activationGrad(const ActivationGradArgs& args);
void weightedSum(const WeightedSumArgs& args);
void add(const AddArgs& args);
void scale(const ScaleArgs& args);
size_t gmmScratchBytes(int32_t n, int32_t k);
size_t packedWeightBytes(int32_t n, int32_t k);
size_t weightGradScratchBytes(int32_t m, int32_t n);
}  // namespace avx512

namespace amx {
void gmm(const GmmArgs& args);
void packWeight(const PackWeightArgs& args);
void gmmWeightGrad(const GmmWeightGradArgs& args);
size_t gmmScratchBytes(int32_t n, int32_t k);
size_t packedWeightBytes(int32_t n, int32_t k);
size_t weightGradScratchBytes(int32_t m, int32_t n);
}  // namespace amx

namespace amx_emulated {
void gmm(const GmmArgs& args);
void packWeight(const PackWeightArgs& args);
void gmmWeightGrad(const GmmWeightGradArgs& args);
size_t gmmScratchBytes(int32_t n, int32_t k);
size_t packedWeightBytes(int32_t n, int32_t k);
size_t weightGradScratchBytes(int32_t m, int32_t n);
}  // namespace amx_emulated

}  // namespace sluice::ops

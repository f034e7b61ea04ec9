// The kernels of each instruction set by name, for the tables of select.cc and for tests.
//
// A namespace has only the kernels that are compiled for it: the AVX-VNNI, AVX-512 and AMX sets take the
// others from the sets before them. Only tests link amx_emulated, the source of amx on a software tile unit,
// avxvnni_emulated (unit_avxvnni_codes.h) and avx512_other_width (halves_avx512.h).
#pragma once

#include <span>
#include <vector>

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// Returns the products of `base`, where one of `others` replaces the product of the same types.
std::vector<GmmKernels> replaceProducts(std::span<const GmmKernels> base, std::span<const GmmKernels> others);

namespace portable {
extern const ProductKernels products;
void activation(const ActivationArgs& args);
void activationGrad(const ActivationGradArgs& args);
void gatherRows(const GatherRowsArgs& args);
void weightedSum(const WeightedSumArgs& args);
void weightedSumF32(const WeightedSumF32Args& args);
void sumScalars(const SumScalarsArgs& args);
void add(const AddArgs& args);
void scale(const ScaleArgs& args);
void scaleF32(const ScaleF32Args& args);
void columnSum(const ColumnSumArgs& args);
void rowDot(const RowDotArgs& args);
void quantize(const QuantizeArgs& args);
void amax(const AmaxArgs& args);
void encode(const EncodeArgs& args);
}  // namespace portable

namespace avx2 {
extern const ProductKernels products;
void activation(const ActivationArgs& args);
void activationGrad(const ActivationGradArgs& args);
void weightedSum(const WeightedSumArgs& args);
void weightedSumF32(const WeightedSumF32Args& args);
void add(const AddArgs& args);
void scale(const ScaleArgs& args);
void scaleF32(const ScaleF32Args& args);
void columnSum(const ColumnSumArgs& args);
void rowDot(const RowDotArgs& args);
void quantize(const QuantizeArgs& args);
void encode(const EncodeArgs& args);
}  // namespace avx2

namespace avxvnni {
extern const GmmKernels codeProducts[2];
}  // namespace avxvnni

namespace avxvnni_emulated {
extern const GmmKernels codeProducts[2];
}  // namespace avxvnni_emulated

namespace avx512 {
extern const ProductKernels products;
void activation(const ActivationArgs& args);
void activationGrad(const ActivationGradArgs& args);
void weightedSum(const WeightedSumArgs& args);
void weightedSumF32(const WeightedSumF32Args& args);
void add(const AddArgs& args);
void scale(const ScaleArgs& args);
void scaleF32(const ScaleF32Args& args);
void columnSum(const ColumnSumArgs& args);
void rowDot(const RowDotArgs& args);
void quantize(const QuantizeArgs& args);
void encode(const EncodeArgs& args);
}  // namespace avx512

namespace avx512_other_width {
extern const ProductKernels products;
}  // namespace avx512_other_width

namespace amx {
extern const ProductKernels products;
}  // namespace amx

namespace amx_emulated {
extern const ProductKernels products;
}  // namespace amx_emulated

}  // namespace sluice::ops

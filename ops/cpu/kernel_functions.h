// The tables of kernels of each instruction set, from which select.cc builds a table for the machine, and for
// tests.
//
// A namespace has only the kernels that are compiled for it: the AVX-VNNI and AMX sets take the others from
// AVX2 and AVX-512. Only tests link amx_emulated, the source of amx on a software tile unit,
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
extern const RowKernels rows;
}  // namespace portable

namespace avx2 {
extern const ProductKernels products;
extern const RowKernels rows;
}  // namespace avx2

namespace avxvnni {
extern const GmmKernels codeProducts[2];
}  // namespace avxvnni

namespace avxvnni_emulated {
extern const GmmKernels codeProducts[2];
}  // namespace avxvnni_emulated

namespace avx512 {
extern const ProductKernels products;
extern const RowKernels rows;
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

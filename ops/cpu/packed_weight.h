// The packed form of a weight: the panels that the Unit of an instruction set reads, one after another, each
// over the whole sum, as GmmSource::packB makes them. It contains the same numbers as the weight, so a
// product gives the same bits with and without it. Internal linkage: see blocked_product.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/abi/kernels.h"
#include "ops/cpu/blocked_product.h"
#include "ops/cpu/product_kernels.h"

namespace sluice::ops {
namespace {

template <class Unit>
size_t packedBytesBy(int32_t n, int32_t k) {
  if (n <= 0 || k <= 0) return 0;
  return static_cast<size_t>(packedOffset<Unit>(static_cast<int32_t>(roundUp(n, Unit::kNr)), 0, k)) *
         sizeof(typename Unit::Element);
}

template <class Unit, class Pack>
void packWeightBy(const PackWeightArgs& args) {
  GmmArgs product = {};
  product.b = args.b;
  product.transposeB = args.transposeB;
  const GmmSource<Unit, Pack> source{product};
  auto* const packed = static_cast<typename Unit::Element*>(args.packed);
  for (int32_t col = 0; col < args.n; col += Unit::kNr)
    for (int32_t k0 = 0; k0 < args.k; k0 += Unit::kKc)
      source.packB(col, smaller(Unit::kNr, args.n - col), k0, smaller(Unit::kKc, args.k - k0),
                   packed + packedOffset<Unit>(col, k0, args.k), nullptr);
}

}  // namespace
}  // namespace sluice::ops

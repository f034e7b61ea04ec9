// unroll<N>(f) calls f(Index<0>()) to f(Index<N - 1>()).
//
// The register tiles are arrays indexed by loops of constant length. g++ 12 splits such an array into
// registers only if the indices are constants before its first pass over aggregates. If it has to unroll the
// loops itself, it stores every accumulator in every step. Internal linkage: see blocked_product.h.
#pragma once

namespace sluice::ops {
namespace {

template <int kValue>
struct Index {
  static constexpr int value = kValue;
};

template <int kCount, int kFrom = 0, class Body>
__attribute__((always_inline)) inline void unroll(const Body& body) {
  if constexpr (kFrom < kCount) {
    body(Index<kFrom>());
    unroll<kCount, kFrom + 1>(body);
  }
}

}  // namespace
}  // namespace sluice::ops

// For the lambdas passed to unroll, which must be inlined.
#define SLUICE_UNROLLED __attribute__((always_inline))

// For the loops that take most of a kernel's time: inlined, as g++ decides by the size of everything around,
// they have fewer registers. And for what is called once for many numbers, but in many places: inlined, it
// would be compiled again in each of them.
#define SLUICE_NOT_INLINED __attribute__((noinline))

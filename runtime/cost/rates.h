// Rates: the performance figures of a device that the cost model needs.
//
// Value type. Figures are per core unless they are called "shared"; seconds, bytes, FLOP (a multiply-add is
// two) and elements. targets/NAME.json has the source of each figure.
#pragma once

#include <cstdint>

namespace sluice {

// The rate of one kind of product c[m,n] = a[m,k] b[k,n]. The kernel's other work (packing a and b, loading
// and storing sums) costs as much as additional rows, columns or elements of the sum would:
//   seconds = 2 / flops * (m n k + halfRows n k passes + halfColumns m k + halfSum m n)
// with passes = ceil(m / rowBlock). A product of only halfRows rows runs at half the rate.
struct ProductRate {
  double flops = 0;
  double halfRows = 0;
  double halfColumns = 0;
  double halfSum = 0;
  friend bool operator==(const ProductRate&, const ProductRate&) = default;
};

struct MatrixRates {
  ProductRate gmm;
  ProductRate gmmTransposed;
  ProductRate weightGrad;  // m x n is the gradient's tile, k the number of rows that are summed
  double rowUnit = 1;      // rows (of c) are computed in multiples of this
  double columnUnit = 1;   // likewise columns
  double rowBlock = 0;     // rows of c that share one pass over b; 0: all
  double sumBlock = 0;     // elements of the sum after which sums go back to memory; 0: they never do
  friend bool operator==(const MatrixRates&, const MatrixRates&) = default;
};

// Elements of the result per second, everything in cache.
struct VectorRates {
  double activation = 0;
  double activationGrad = 0;  // of the incoming gradient
  double sum = 0;             // elements added: a combine of K rows adds K for each element of its result
  double copy = 0;
  double round = 0;  // numbers of a factor rounded to FP8 as they are packed, beyond packing them
  friend bool operator==(const VectorRates&, const VectorRates&) = default;
};

struct MemoryRates {
  double coreRead = 0;  // bytes per second
  double coreWrite = 0;
  double sharedRead = 0;  // all cores together
  double sharedWrite = 0;
  double halfRun = 0;  // length of contiguous reads, in tiles of a wider matrix, that run at half the rate
  double overlap = 0;  // fraction of the time of products and element-wise work that can hide reading
  double writeOverlap = 0;  // fraction of a weight gradient's product that can hide the writing of its result
  friend bool operator==(const MemoryRates&, const MemoryRates&) = default;
};

struct CacheSizes {
  double core = 0;       // bytes of the cache (or scratchpad) that sums must stay in
  double coreSpill = 0;  // bytes per second to the memory beyond it
  double shared = 0;     // bytes of the last level, of all cores together; 0: none
  friend bool operator==(const CacheSizes&, const CacheSizes&) = default;
};

struct LinkRates {
  double bandwidth = 0;  // bytes per second out of one rank
  double latency = 0;    // seconds
  friend bool operator==(const LinkRates&, const LinkRates&) = default;
};

struct Rates {
  MatrixRates matrix;
  VectorRates vector;
  MemoryRates memory;
  CacheSizes caches;
  LinkRates link;
  double task = 0;  // seconds to fetch a task, find its events complete, and signal
  friend bool operator==(const Rates&, const Rates&) = default;
};

}  // namespace sluice

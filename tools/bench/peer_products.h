// PeerProducts: a library that multiplies matrices on the CPU, as the part of a peer that differs from
// library to library.
//
// Resource type, one owner. Threads call multiply() at the same time, each with its own number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/base/expected.h"
#include "tools/bench/cases.h"
#include "tools/bench/peer.h"

namespace sluice::tools {

// The products of a layer: two of the forward, then four of the backward.
enum class LayerProduct : uint8_t { kUp, kDown, kActGrad, kGateGrad, kDownWeightGrad, kGateUpWeightGrad };
constexpr int kLayerProducts = 6;

constexpr bool isWeightGrad(LayerProduct product) { return product >= LayerProduct::kDownWeightGrad; }

// c [m, n] = a [m, k] x b [k, n], row-major; a transposed one lies as [k, m] or [n, k].
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  bool transposedA = false, transposedB = false;
};
ProductShape productShape(LayerProduct product, const RowsCase& rows, int64_t rowsOfExpert);

class PeerProducts {
 public:
  virtual ~PeerProducts() = default;

  // Makes beforehand what a product of an expert with rows needs. `weight`: its b, or null for a gradient of
  // a weight. It is called for every product before the first multiply().
  virtual void prepare(LayerProduct product, int expert, const std::byte* weight) = 0;

  // `thread` counts from 0. `b` is the weight that was prepared, or the second operand of a gradient of a
  // weight, whose result is fp32. Throws std::exception if the library refuses.
  virtual void multiply(LayerProduct product, int expert, int thread, const std::byte* a, const std::byte* b,
                        std::byte* c) = 0;

  // A product that is called from now on is computed by this number of threads. Those that the library has
  // apart from OpenMP's are there after the call.
  virtual void useThreads(int threads) = 0;
  virtual void endThreads() = 0;
  virtual bool threadsAreOpenMp() const = 0;
};

// Rows and weights are of `type`; `threads` is the most that will call at the same time.
struct ProductsSetup {
  const RowsCase* rows = nullptr;
  DType type = DType::kBF16;
  PeerMode mode;
  int threads = 1;
};

// Errors: the library is missing; the message explains how to get it.
Expected<std::unique_ptr<PeerProducts>> makeOneDnnProducts(const ProductsSetup& setup);
Expected<std::string> oneDnnVersion();

// OpenBLAS computes in fp32, and has no layouts of its own.
Expected<std::unique_ptr<PeerProducts>> makeOpenBlasProducts(const ProductsSetup& setup);
Expected<std::string> openBlasVersion();

}  // namespace sluice::tools

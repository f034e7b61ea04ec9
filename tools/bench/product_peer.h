// ProductPeer: a library that multiplies matrices on a GPU, as a peer of Sluice's products; and cuBLAS as
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/gpu/gpu_backend.h"
#include "tools/bench/gpu_layer.h"

namespace sluice::tools {

// result [rows, columns] = left [rows, sum] x right [sum, columns], in memory of the GPU, contiguous.
struct OneProduct {
  const std::byte* left = nullptr;
  const std::byte* right = nullptr;
  std::byte* result = nullptr;
  int64_t rows = 0, columns = 0, sum = 0;  // all above 0
};

// The same product of several experts: bf16 with sums in fp32.
struct GroupedProduct {
  bool isLeftTransposed = false;   // left is stored as [sum, rows]
  bool isRightTransposed = false;  // right is stored as [columns, sum]
  bool isResultFloat = false;      // result is fp32, else bf16
  std::vector<OneProduct> experts;
};

class ProductPeer {
 public:
  virtual ~ProductPeer() = default;

  // Makes beforehand what a product needs. Returns its number, from 0.
  virtual Expected<size_t> add(const GroupedProduct& product) = 0;

  // Runs those products one after another, and returns when they are done: `step` and `launch`. Errors: the
  // library refuses one of them.
  virtual Expected<StepSeconds> run(std::span<const size_t> numbers) = 0;
};

struct NamedPeer {
  std::string name;  // "cuBLAS 13.1.0, grouped"
  std::unique_ptr<ProductPeer> peer;
};
// On the GPU of that backend, which outlives them. Error: why there are none.
using PeersOf = std::function<Expected<std::vector<NamedPeer>>(GpuBackend& backend)>;

// cuBLAS in a loop over experts (cublasGemmEx), and since 12.5 grouped (cublasGemmGroupedBatchedEx: all
// experts by one call). Errors: a build or a machine without cuBLAS; what it said.
Expected<std::vector<NamedPeer>> makeCublasPeers(GpuBackend& backend);

}  // namespace sluice::tools

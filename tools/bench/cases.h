// The layers that `sluice bench` measures: their sizes and the rows of each expert.
//
// Value types and free functions of values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

enum class Pass : uint8_t { kForward, kBackward };

// "forward" or "backward", which are also the names of the entries.
std::string_view passName(Pass pass);

// The products of one rank on received rows, sorted by expert: K is 1, and a token is a row.
struct RowsCase {
  std::string name;
  int64_t hidden = 1;
  int64_t inter = 1;
  std::vector<int64_t> rows;  // of each expert

  int64_t allRows() const;
  int64_t experts() const { return std::ssize(rows); }
};

// What a layer computes: routed experts, or a linear layer whose weight the ranks share by rows or columns
// (graphs/linear).
enum class LayerKind : uint8_t { kExperts, kColumnParallel, kRowParallel };

// A whole layer: routing, dispatch, products, combine. Layers of the same name are the same layer on other
// numbers of ranks. A linear layer has one expert, K 1, tp = ranks, and hidden columns in, inter columns out.
struct LayerCase {
  std::string name;
  int64_t hidden = 1;
  int64_t inter = 1;
  int64_t experts = 1;  // of all ranks
  int64_t topK = 1;
  int64_t tokens = 1;  // of each rank
  int ranks = 1;
  int tp = 1;                    // ranks of a group, which share its experts
  std::string skew = "uniform";  // routing, with the words of `sluice make-inputs`
  LayerKind kind = LayerKind::kExperts;
  bool sameTokens = false;  // of all ranks; linear layers only

  bool isLinear() const { return kind != LayerKind::kExperts; }
  int64_t allTokens() const { return sameTokens ? tokens : tokens * ranks; }
};

// "a" to "f", the cases of docs/performance.md, or "tiny", which is small enough for a test.
std::optional<RowsCase> rowsCase(std::string_view name);

// "layer", with 512 tokens per rank; and one that is small enough for a test.
LayerCase layerCase(int ranks);
LayerCase tinyLayer(int ranks);

// What is measured on a GPU: products of rows that are already routed; or a layer of one rank, whose routing
// gives the rows of the products that are measured beside it.
struct GpuCase {
  std::string name;
  RowsCase rows;  // without a layer
  std::optional<LayerCase> layer;
};
// "a" to "f" and "tiny" as above; "dense", one expert whose first product is one of 8192 x 8192 x 8192;
// "n2048", "n1024", "n512" and "n256", layers of 4096 columns with this intermediate size, 64 experts, K 4,
// 32768 tokens; and "tiny-layer".
std::optional<GpuCase> gpuCase(std::string_view name);
// All but the tiny ones.
const std::vector<std::string>& gpuCaseNames();

// A column-parallel and a row-parallel linear layer of `in` columns in and `out` columns out, for `rows`
// tokens of all ranks together, or of each if they have the same tokens. Errors: ranks that cannot share the
// tokens or the columns evenly.
struct LinearSize {
  int64_t rows = 4096, in = 4096, out = 8192;
};
Expected<std::vector<LayerCase>> linearCases(const LinearSize& size, int ranks, bool sameTokens);

// The exponent S of "zipf:S"; 0 for "uniform". Errors: neither of these, or S outside 0 to 10.
Expected<double> skewExponent(std::string_view skew);

// The work of one rank of `ep` on a layer of a known model: of the rank with the most rows, when each rank
// has `tokens` tokens. `skew` is "uniform" or "zipf:S": the n-th most popular expert is chosen in proportion
// to 1 / n^S, and popularity is a random order. Errors: an unknown model (lists the known ones), another
// skew, more ranks than experts.
Expected<RowsCase> modelRows(std::string_view model, int64_t tokens, int64_t ep, std::string_view skew);
Expected<LayerCase> modelLayer(std::string_view model, int64_t tokens, int ranks, std::string_view skew);
std::vector<std::string> modelNames();

// The rows of each of `experts` experts for `tokens` tokens with `topK` experts each. Their sum is exact, and
// no expert has more than `tokens`.
std::vector<int64_t> spreadRows(int64_t tokens, int64_t topK, int64_t experts, double exponent);

// Floating-point operations and bytes of one pass: 6 R H I operations forward and twice that backward. Every
// matrix that a pass must read or write counts once (forward: reads the weights of experts with rows and X,
// writes Y and the product of gate and up, which the backward needs; backward: also reads dY and that
// product, writes dX and the gradients of all weights in fp32).
struct Work {
  double flops = 0;
  double readBytes = 0;
  double writtenBytes = 0;
};
// `weightBytes`: of an element of a weight. A backward of weights that are not trained gives dx only.
Work countWork(const RowsCase& rows, Pass pass, double weightBytes = 2, bool trainsWeights = true);

}  // namespace sluice::tools

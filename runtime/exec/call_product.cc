#include "runtime/exec/call_product.h"

#include <algorithm>

#include "ops/activation/tiling.h"
#include "ops/gmm/tiling.h"
#include "ops/gmm_activation/tiling.h"
#include "ops/gmm_weight_grad/tiling.h"
#include "runtime/exec/operands.h"

namespace sluice {
namespace {

// Rows of a product that wait in scratch for their activation: so few that they stay in the second cache
// level, and as many as share one packing of the weight, so that going by them costs nothing.
constexpr int32_t kRowsInScratch = 192;

constexpr size_t roundUpToLine(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes of the kernel's own scratch; the product begins behind it.
size_t kernelScratchBytes(const ops::KernelSet& kernels, const Tiling& tiling) {
  return roundUpToLine(kernels.gmmScratchBytes(std::min(tiling.tileN, tiling.n), tiling.k));
}

// The products of one task with the weight of its expert, which has `width` columns in all.
class Product {
 public:
  Product(const Step& step, const Family& family, bool transposed, int32_t width, int32_t expert,
          std::byte* scratch)
      : kernels_(step.plan->kernels()),
        tiling_(family.tiling),
        a_(step.at(family.reads[0])),
        weight_(elements<BFloat16>(step.at(family.reads[1]), expert)),
        ldb_(transposed ? tiling_.k : width),
        transposed_(transposed),
        scratch_(scratch) {}

  // c = rows [row, row + rows) times columns [column, column + columns).
  void multiply(int64_t row, int32_t rows, int64_t column, int32_t columns, BFloat16* c, int64_t ldc) const {
    kernels_.gmm({.a = elements<BFloat16>(a_, row),
                  .lda = leading<BFloat16>(a_),
                  .b = weight_ + column * (transposed_ ? ldb_ : 1),
                  .ldb = ldb_,
                  .c = c,
                  .ldc = ldc,
                  .rows = rows,
                  .n = columns,
                  .k = tiling_.k,
                  .transposeB = transposed_,
                  .scratch = scratch_,
                  .alpha = ops::alphaOf(tiling_)});
  }

 private:
  const ops::KernelSet& kernels_;
  const Tiling& tiling_;
  const BufferAddress& a_;
  const BFloat16* const weight_;
  const int64_t ldb_;
  const bool transposed_;
  std::byte* const scratch_;
};

// Where a fused task keeps its product: in scratch, behind what the kernel uses.
BFloat16* productIn(const Step& step, const Family& family, std::byte* scratch) {
  return reinterpret_cast<BFloat16*>(scratch + kernelScratchBytes(step.plan->kernels(), family.tiling));
}

// Calls body(first row, rows) for equal parts of at most kRowsInScratch rows.
template <class Body>
void forParts(const RowRange& range, const Body& body) {
  const int32_t parts = std::max(1, ceilDiv(range.rows, kRowsInScratch));
  const int32_t length = ceilDiv(ceilDiv(range.rows, parts), 16) * 16;
  for (int32_t row = 0; row < range.rows; row += length)
    body(range.begin + row, std::min(length, range.rows - row));
}

}  // namespace

void callGmm(const Step& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const RowRange range = rowsOf(step, task);
  const ops::TileRange columns = ops::gmmTileColumns(family.tiling, task.tile);
  const BufferAddress& c = step.at(family.writes[0]);
  const Product product(step, family, ops::gmmTransposed(family.tiling), family.tiling.n, range.expert,
                        scratch);
  product.multiply(range.begin, range.rows, columns.begin, columns.length(),
                   elements<BFloat16>(c, range.begin) + columns.begin, leading<BFloat16>(c));
}

void callGmmWeightGrad(const Step& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const Tiling& tiling = family.tiling;
  const auto [m, n] = ops::weightGradTile(tiling, task.tile);
  const RowRange range = rowsOf(step, task);
  const BufferAddress& a = step.at(family.reads[0]);
  const BufferAddress& b = step.at(family.reads[1]);
  const BufferAddress& grad = step.at(family.writes[0]);
  const bool narrow = step.program().at(family.writes[0]).type == DType::kBF16;
  const int64_t corner = int64_t{m.begin} * tiling.n + n.begin;
  step.plan->kernels().gmmWeightGrad(
      {.a = elements<BFloat16>(a, range.begin) + m.begin,
       .lda = leading<BFloat16>(a),
       .b = elements<BFloat16>(b, range.begin) + n.begin,
       .ldb = leading<BFloat16>(b),
       .scale = optionalFloats(step, family.reads[2], range.begin),
       .c = narrow ? nullptr : elements<float>(grad, range.expert) + corner,
       .ldc = tiling.n,
       .rows = range.rows,
       .m = m.length(),
       .n = n.length(),
       .scratch = scratch,
       .accumulate = ops::weightGradAccumulates(tiling),
       .alpha = ops::alphaOf(tiling),
       .narrow = narrow ? elements<BFloat16>(grad, range.expert) + corner : nullptr});
}

void callGmmActivation(const Step& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const Tiling& tiling = family.tiling;
  const RowRange range = rowsOf(step, task);
  const ops::TileRange columns = ops::fusedTileColumns(tiling, task.tile);
  const int32_t width = columns.length();
  const BufferAddress& act = step.at(family.writes[0]);
  const bool keeps = !family.writes[1].none();
  const Product product(step, family, ops::fusedTransposed(tiling), 2 * tiling.n, range.expert, scratch);
  forParts(range, [&](int64_t row, int32_t rows) {
    // gate and up: where they are kept, else side by side in scratch
    BFloat16* gate = productIn(step, family, scratch);
    int64_t ld = 2 * width;
    int32_t upColumn = width;
    if (keeps) {
      const BufferAddress& gateUp = step.at(family.writes[1]);
      gate = elements<BFloat16>(gateUp, row) + columns.begin;
      ld = leading<BFloat16>(gateUp);
      upColumn = tiling.n;
    }
    product.multiply(row, rows, columns.begin, width, gate, ld);
    product.multiply(row, rows, int64_t{tiling.n} + columns.begin, width, gate + upColumn, ld);
    step.plan->kernels().activation(
        {.gateUp = gate,
         .ldGateUp = ld,
         .act = elements<BFloat16>(act, row) + columns.begin,
         .ldAct = leading<BFloat16>(act),
         .rows = rows,
         .inter = width,
         .kind = static_cast<ops::ActivationKind>(ops::activationKindBits(tiling)),
         .limit = ops::activationLimit(tiling),
         .upColumn = upColumn});
  });
}

void callGmmActivationGrad(const Step& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const Tiling& tiling = family.tiling;
  const RowRange range = rowsOf(step, task);
  const ops::TileRange columns = ops::fusedTileColumns(tiling, task.tile);
  const int32_t width = columns.length();
  const BufferAddress& gateUp = step.at(family.reads[2]);
  const BufferAddress& out = step.at(family.writes[0]);
  BFloat16* const actGrad = productIn(step, family, scratch);
  const Product product(step, family, ops::fusedTransposed(tiling), tiling.n, range.expert, scratch);
  forParts(range, [&](int64_t row, int32_t rows) {
    product.multiply(row, rows, columns.begin, width, actGrad, width);
    step.plan->kernels().activationGrad(
        {.actGrad = actGrad,
         .ldActGrad = width,
         .gateUp = elements<BFloat16>(gateUp, row) + columns.begin,
         .ldGateUp = leading<BFloat16>(gateUp),
         .rowWeight = optionalFloats(step, family.reads[3], row),
         .gateUpGrad = elements<BFloat16>(out, row) + columns.begin,
         .ldGateUpGrad = leading<BFloat16>(out),
         .rowWeightGrad = optionalFloats(step, family.writes[1], row),
         .rows = rows,
         .inter = width,
         .kind = static_cast<ops::ActivationKind>(ops::activationKindBits(tiling)),
         .limit = ops::activationLimit(tiling),
         .upColumn = tiling.n,
         .upGradColumn = tiling.n});
  });
}

size_t productScratchBytes(const ops::KernelSet& kernels, const Family& family, int32_t slotSize) {
  const Tiling& t = family.tiling;
  const size_t rows = std::min(slotSize, kRowsInScratch);
  const size_t columns = std::min(t.tileN, t.n);
  switch (family.op) {
    case OpKind::kGmm:
      return kernelScratchBytes(kernels, t);
    case OpKind::kGmmWeightGrad:
      return kernels.weightGradScratchBytes(std::min(t.tileM, t.m), std::min(t.tileN, t.n));
    case OpKind::kGmmActivation:
      return kernelScratchBytes(kernels, t) + (family.writes[1] ? 0 : rows * 2 * columns * sizeof(BFloat16));
    case OpKind::kGmmActivationGrad:
      return kernelScratchBytes(kernels, t) + rows * columns * sizeof(BFloat16);
    default:
      return 0;
  }
}

}  // namespace sluice

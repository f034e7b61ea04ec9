#include "runtime/cpu/call_product.h"

#include <algorithm>

#include "runtime/cpu/operands.h"
#include "runtime/cpu/weight_panels.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

// Rows of a product that wait in scratch for their activation: so few that they stay in the second cache
// level beside the rows and sums that the kernel keeps there, and many, since each part reads the weight
// again, and packs it again where it is not packed.
constexpr int32_t kRowsInScratch = 256;

constexpr size_t roundUpToLine(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes of the kernel's own scratch; the product begins behind it.
size_t kernelScratchBytes(const ops::KernelSet& kernels, const Tiling& tiling) {
  return roundUpToLine(kernels.gmmScratchBytes(std::min(tiling.tileN, tiling.n), tiling.k));
}

// Slots of at most so many rows are multiplied without packing the weight.
constexpr int32_t kFewRows = 16;

// Whether other tasks of this step multiply by the same panel.
bool isShared(const CpuStep& step, const Task& task, const RowRange& range) {
  const RoutingTables& tables = *step.tables;
  const bool dense = step.plan->at(task.family).space == SpaceKind::kTokens;
  const int32_t rows =
      dense ? tables.tokens : tables.expertRow[range.expert + 1] - tables.expertRow[range.expert];
  return rows > range.rows && range.rows > kFewRows;
}

// The products of one task with the weight of its expert: `columns` of each part of the weight, whose parts
// lie tiling.n columns apart.
class Product {
 public:
  Product(const CpuStep& step, const Task& task, const RowRange& range, TileRange columns, std::byte* scratch)
      : kernels_(step.kernels()),
        family_(step.program().at(task.family)),
        tiling_(family_.tiling),
        columns_(columns),
        a_(step.at(family_.reads[0])),
        weight_(elements<BFloat16>(step.at(family_.reads[1]), range.expert)),
        transposed_(isTransposed(family_.op, tiling_)),
        ldb_(transposed_ ? tiling_.k : infoOf(family_.op).weightParts * tiling_.n),
        scratch_(scratch) {
    if (step.panels != nullptr && range.rows > 0) packed_ = findPanel(step, task, range);
  }

  // c = rows [row, row + rows) times the columns of a part.
  void multiply(int64_t row, int32_t rows, int32_t part, BFloat16* c, int64_t ldc) const {
    kernels_.gmm({.a = elements<BFloat16>(a_, row),
                  .lda = leading<BFloat16>(a_),
                  .b = weightOf(part),
                  .ldb = ldb_,
                  .c = c,
                  .ldc = ldc,
                  .rows = rows,
                  .n = columns_.length(),
                  .k = tiling_.k,
                  .transposeB = transposed_,
                  .scratch = scratch_,
                  .alpha = alphaOf(tiling_),
                  .packedB = packed_ == nullptr ? nullptr : packed_ + part * partBytes()});
  }

 private:
  const BFloat16* weightOf(int32_t part) const {
    return weight_ + (int64_t{part} * tiling_.n + columns_.begin) * (transposed_ ? ldb_ : 1);
  }
  size_t partBytes() const { return kernels_.packedWeightBytes(columns_.length(), tiling_.k); }

  // The packed columns of all parts, packed here if this task is the first to need them; or null.
  const std::byte* findPanel(const CpuStep& step, const Task& task, const RowRange& range) const {
    const int32_t parts = infoOf(family_.op).weightParts;
    const WeightPanels::Panel panel = step.panels->claim(task.family, range.expert, task.tile,
                                                         parts * partBytes(), isShared(step, task, range));
    if (!panel.toPack) return panel.data;
    for (int32_t part = 0; part < parts; ++part)
      kernels_.packWeight({.b = weightOf(part),
                           .ldb = ldb_,
                           .n = columns_.length(),
                           .k = tiling_.k,
                           .transposeB = transposed_,
                           .packed = panel.data + part * partBytes()});
    WeightPanels::publish(panel);
    return panel.data;
  }

  const ops::KernelSet& kernels_;
  const Family& family_;
  const Tiling& tiling_;
  const TileRange columns_;
  const BufferAddress& a_;
  const BFloat16* const weight_;
  const bool transposed_;
  const int64_t ldb_;
  std::byte* const scratch_;
  const std::byte* packed_ = nullptr;
};

// Where a fused task keeps its product: in scratch, behind what the kernel uses.
BFloat16* productIn(const CpuStep& step, const Family& family, std::byte* scratch) {
  return reinterpret_cast<BFloat16*>(scratch + kernelScratchBytes(step.kernels(), family.tiling));
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

void callGmm(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const RowRange range = rowsOf(step, task);
  const TileRange columns = tileOf(family.op, family.tiling, task.tile).n;
  const BufferAddress& c = step.at(family.writes[0]);
  const Product product(step, task, range, columns, scratch);
  product.multiply(range.begin, range.rows, 0, elements<BFloat16>(c, range.begin) + columns.begin,
                   leading<BFloat16>(c));
}

void callGmmWeightGrad(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const Tiling& tiling = family.tiling;
  const auto [m, n] = tileOf(family.op, tiling, task.tile);
  const RowRange range = rowsOf(step, task);
  const BufferAddress& a = step.at(family.reads[0]);
  const BufferAddress& b = step.at(family.reads[1]);
  const BufferAddress& grad = step.at(family.writes[0]);
  const bool narrow = step.program().at(family.writes[0]).type == DType::kBF16;
  const int64_t corner = int64_t{m.begin} * tiling.n + n.begin;
  step.kernels().gmmWeightGrad(
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
       .accumulate = accumulates(family),
       .alpha = alphaOf(tiling),
       .narrow = narrow ? elements<BFloat16>(grad, range.expert) + corner : nullptr});
}

void callGmmActivation(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const Tiling& tiling = family.tiling;
  const RowRange range = rowsOf(step, task);
  const TileRange columns = tileOf(family.op, tiling, task.tile).n;
  const int32_t width = columns.length();
  const BufferAddress& act = step.at(family.writes[0]);
  const bool keeps = !family.writes[1].none();
  const Product product(step, task, range, columns, scratch);
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
    product.multiply(row, rows, 0, gate, ld);
    product.multiply(row, rows, 1, gate + upColumn, ld);
    step.kernels().activation({.gateUp = gate,
                               .ldGateUp = ld,
                               .act = elements<BFloat16>(act, row) + columns.begin,
                               .ldAct = leading<BFloat16>(act),
                               .rows = rows,
                               .inter = width,
                               .kind = tiling.activation,
                               .limit = toFloat(tiling.limit),
                               .upColumn = upColumn});
  });
}

void callGmmActivationGrad(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const Tiling& tiling = family.tiling;
  const RowRange range = rowsOf(step, task);
  const TileRange columns = tileOf(family.op, tiling, task.tile).n;
  const int32_t width = columns.length();
  const BufferAddress& gateUp = step.at(family.reads[2]);
  const BufferAddress& out = step.at(family.writes[0]);
  BFloat16* const actGrad = productIn(step, family, scratch);
  const Product product(step, task, range, columns, scratch);
  forParts(range, [&](int64_t row, int32_t rows) {
    product.multiply(row, rows, 0, actGrad, width);
    step.kernels().activationGrad({.actGrad = actGrad,
                                   .ldActGrad = width,
                                   .gateUp = elements<BFloat16>(gateUp, row) + columns.begin,
                                   .ldGateUp = leading<BFloat16>(gateUp),
                                   .rowWeight = optionalFloats(step, family.reads[3], row),
                                   .gateUpGrad = elements<BFloat16>(out, row) + columns.begin,
                                   .ldGateUpGrad = leading<BFloat16>(out),
                                   .rowWeightGrad = optionalFloats(step, family.writes[1], row),
                                   .rows = rows,
                                   .inter = width,
                                   .kind = tiling.activation,
                                   .limit = toFloat(tiling.limit),
                                   .upColumn = tiling.n,
                                   .upGradColumn = tiling.n});
  });
}

size_t productScratchBytes(const ops::KernelSet& kernels, const Family& family, int32_t slotSize) {
  const Tiling& t = family.tiling;
  const size_t rows = std::min(slotSize, kRowsInScratch);
  const size_t columns = std::min(t.tileN, t.n);
  const OpInfo& op = infoOf(family.op);
  if (op.isSum()) return kernels.weightGradScratchBytes(std::min(t.tileM, t.m), std::min(t.tileN, t.n));
  if (op.weightParts == 0) return 0;
  const bool keeps =
      op.vector == VectorWork::kNone || (op.vector == VectorWork::kActivation && has(family.writes, 1));
  return kernelScratchBytes(kernels, t) + (keeps ? 0 : rows * op.weightParts * columns * sizeof(BFloat16));
}

}  // namespace sluice

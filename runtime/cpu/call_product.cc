#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "runtime/base/cache_line.h"
#include "runtime/cpu/cpu_step.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/weight_panels.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

// Rows of a product that wait in scratch for their activation: so few that they stay in the second cache
// level beside the rows and sums that the kernel keeps there, and many, since each part reads the weight
// again, and packs it again where it is not packed.
constexpr int32_t kRowsInScratch = 256;

// Rows whose products with all parts of a weight are one, where the task has all columns: its time is that of
// reading the weight, which is shortest in the order of memory. The sums of more rows would leave the caches.
constexpr int32_t kMaxRowsOfAllParts = 16;

// Bytes of the kernel's own scratch; the product of a fused task follows it.
size_t kernelScratchBytes(const ops::GmmKernels& gmm, const Family& family) {
  const Tiling& tiling = family.tiling;
  const int32_t columns = weightParts(family.op, tiling) * std::min(tiling.tileN, tiling.n);
  return roundUpToLine(gmm.scratchBytes(columns, tiling.k));
}

// The products of one task with the weight of its expert: the task's columns of each part of the weight,
// whose parts lie tiling.n columns apart.
class Product {
 public:
  Product(const CpuStep& step, const Task& task, std::byte* scratch)
      : family_(step.program().at(task.family)),
        ids_(step.operands(task)),
        kernels_(*step.kernels().find(findProductTypes(step.program(), family_))),
        tiling_(family_.tiling),
        range_(findRows(step, task)),
        columns_(findTile(family_.op, tiling_, task.tile).n),
        parts_(weightParts(family_.op, tiling_)),
        a_(factorRowsAt(step, task, &Operands::a, range_.begin)),
        transposed_(isTransposed(family_.op, tiling_)),
        weight_(elements<std::byte>(step.at(ids_.b), range_.expert),
                transposed_ ? tiling_.k : parts_ * tiling_.n, step.program().at(ids_.b).type),
        bias_(findBias(step, ids_.bias, ids_.c ? ids_.c : ids_.act, range_.expert,
                       int64_t{parts_} * tiling_.n, columns_.begin)),
        rowScale_(hasRowBlocks(step.program(), family_) ? nullptr : optionalFloats(step, ids_.scaleA, 0)),
        powersA_(powersAt(step)),
        scales_(scalesOf(step)),
        packedScales_(makePackedScales(step.program(), family_)),
        amaxA_(amaxAt(step, ids_.amaxA, range_.expert)),
        amaxB_(amaxAt(step, ids_.amaxB, range_.expert)),
        alpha_(effectiveAlpha(tiling_) *
               (ids_.factorB ? *optionalFloats(step, ids_.factorB, range_.expert) : 1)),
        scratch_(scratch) {
    if (step.panels != nullptr && range_.rows > 0) packed_ = findPanel(step, task);
  }

  const Family& family() const { return family_; }
  const Operands& ids() const { return ids_; }
  const RowRange& range() const { return range_; }
  const TileRange& columns() const { return columns_; }
  int32_t parts() const { return parts_; }

  // Where a fused task keeps its product: in scratch, after what the kernel uses.
  BFloat16* inScratch() const {
    return reinterpret_cast<BFloat16*>(scratch_ + kernelScratchBytes(kernels_, family_));
  }

  // c = rows [row, row + rows) times the task's columns of all parts, which are `apart` columns apart in c.
  void multiply(int64_t row, int32_t rows, const ops::Result& c, int32_t apart = 0) const {
    const bool atOnce = packed_ == nullptr && rows <= kMaxRowsOfAllParts && columns_.length() == tiling_.n;
    ops::GmmArgs first = argsOf(row, rows, 0, c);
    ops::GmmArgs second;
    if (atOnce) {
      first.n *= parts_;
    } else if (parts_ > 1) {
      second = argsOf(row, rows, 1, c.from(0, apart));
      first.second = &second;
    }
    kernels_.multiply(first);
  }

 private:
  ops::GmmArgs argsOf(int64_t row, int32_t rows, int32_t part, const ops::Result& c) const {
    const FactorRows a = a_.from(row - range_.begin);
    return {.a = a.matrix,
            .b = weightOf(part),
            .c = c,
            .rows = rows,
            .n = columns_.length(),
            .k = tiling_.k,
            .transposeB = transposed_,
            .scratch = scratch_,
            .alpha = alpha_,
            .packedB = packed_ == nullptr ? nullptr : packed_ + part * partBytes(),
            .bias = bias_ == nullptr ? nullptr : bias_ + int64_t{part} * tiling_.n,
            .rowScale = rowScale_ == nullptr ? nullptr : rowScale_ + row,
            .scaleB = scalesOfPart(part),
            .roundA = tiling_.roundA,
            .roundB = tiling_.roundB,
            .amaxA = amaxA_,
            .amaxB = amaxB_,
            .powersA = {powersA_.data + row * powersA_.ld, powersA_.ld},
            .rowsA = a.index};
  }

  ops::Operand weightOf(int32_t part) const {
    return transposed_ ? weight_.from(columnOf(part), 0) : weight_.from(0, columnOf(part));
  }
  ops::BlockScales scalesOfPart(int32_t part) const {
    ops::BlockScales scales = scales_;
    (transposed_ ? scales.firstRow : scales.firstColumn) = columnOf(part);
    return scales;
  }
  int32_t columnOf(int32_t part) const { return part * tiling_.n + columns_.begin; }
  size_t partBytes() const { return kernels_.packedBytes(columns_.length(), tiling_.k, packedScales_); }

  ops::RowPowers powersAt(const Step& step) const {
    if (!hasRowBlocks(step.program(), family_)) return {};
    return rowPowersAt<const BFloat16>(step, ids_.scaleA, 0, 0);
  }
  // Those of this expert's weight; without scales the block is a column of the product.
  ops::BlockScales scalesOf(const Step& step) const {
    if (!ids_.scaleB) return {.rows = transposed_ ? 1 : tiling_.k, .columns = transposed_ ? tiling_.k : 1};
    const Buffer& scale = step.program().at(ids_.scaleB);
    const Block block = *findBlock(step.program().at(ids_.b), scale);
    ops::BlockScales scales = {.ld = scale.shape.back().size,
                               .rows = static_cast<int32_t>(block.rows),
                               .columns = static_cast<int32_t>(block.columns),
                               .type = scale.type};
    scales.data = elements<std::byte>(step.at(ids_.scaleB), range_.expert);
    if (ids_.zeroB) scales.zero = elements<std::byte>(step.at(ids_.zeroB), range_.expert);
    return scales;
  }

  // The packed columns of all parts, packed here if this task is the first to need them; or null.
  const std::byte* findPanel(const CpuStep& step, const Task& task) const {
    const WeightPanels::Panel panel =
        step.panels->claim(task.family, range_.expert, task.tile, parts_ * partBytes());
    if (!panel.toPack) return panel.data;
    for (int32_t part = 0; part < parts_; ++part)
      kernels_.packWeight({.b = weightOf(part),
                           .n = columns_.length(),
                           .k = tiling_.k,
                           .transposeB = transposed_,
                           .packed = panel.data + part * partBytes(),
                           .a = a_.matrix.type,
                           .scaleB = scalesOfPart(part),
                           .round = tiling_.roundB,
                           .amax = amaxB_});
    WeightPanels::publish(panel);
    return panel.data;
  }

  const Family& family_;
  const Operands& ids_;
  const ops::GmmKernels& kernels_;
  const Tiling& tiling_;
  const RowRange range_;
  const TileRange columns_;
  const int32_t parts_;
  const FactorRows a_;  // from the slot's first row on
  const bool transposed_;
  const ops::Operand weight_;
  const BFloat16* const bias_;    // from the task's columns of the first part on; or null
  const float* const rowScale_;   // of codes I8, else null
  const ops::RowPowers powersA_;  // of codes of 8-bit floats
  const ops::BlockScales scales_;
  const ops::PackedScales packedScales_;
  const float amaxA_, amaxB_;
  const float alpha_;  // times the factor of the weight
  std::byte* const scratch_;
  const std::byte* packed_ = nullptr;
};

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
  const Product product(step, task, scratch);
  const RowRange& range = product.range();
  product.multiply(
      range.begin, range.rows,
      matrixAt<ops::Result>(step, product.ids().c, range.begin).from(0, product.columns().begin));
}

void callGmmWeightGrad(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  const Tiling& tiling = family.tiling;
  const auto [m, n] = findTile(family.op, tiling, task.tile);
  const RowRange range = findRows(step, task);
  const Operands& ids = step.operands(task);
  const ops::Result grad{elements<std::byte>(step.at(ids.c), range.expert), tiling.n,
                         step.program().at(ids.c).type};
  ops::CodeScales codes;
  if (ids.codeScales) {
    const OperandName coded = codedFactor(step.program(), family);
    codes = codeScalesAt<const BFloat16>(step, ids.codeScales, ids.endScales, range,
                                         countColumns(tiling, coded), (coded == &Operands::a ? m : n).begin);
  }
  const FactorRows a = factorRowsAt(step, task, &Operands::a, range.begin),
                   b = factorRowsAt(step, task, &Operands::b, range.begin);
  step.kernels().gmmWeightGrad({.a = a.matrix.from(0, m.begin),
                                .b = b.matrix.from(0, n.begin),
                                .scale = optionalFloats(step, ids.rowWeights, range.begin),
                                .c = grad.from(m.begin, n.begin),
                                .rows = range.rows,
                                .m = m.length(),
                                .n = n.length(),
                                .scratch = scratch,
                                .accumulate = accumulates(family),
                                .alpha = effectiveAlpha(tiling),
                                .roundA = tiling.roundA,
                                .roundB = tiling.roundB,
                                .amaxA = amaxAt(step, ids.amaxA, range.expert),
                                .amaxB = amaxAt(step, ids.amaxB, range.expert),
                                .scalesA = (tiling.flags & kScalesA) != 0,
                                .codes = codes,
                                .rowsA = a.index,
                                .rowsB = b.index});
}

void callGmmActivation(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Product product(step, task, scratch);
  const Family& family = product.family();
  const Tiling& tiling = family.tiling;
  const int32_t column = product.columns().begin, width = product.columns().length();
  const BufferId kept = product.ids().gateUp;
  const BufferAddress& act = step.at(product.ids().act);
  forParts(product.range(), [&](int64_t row, int32_t rows) {
    // gate and up, or x: where they are kept, else side by side in scratch
    BFloat16* gate = product.inScratch();
    int64_t ld = int64_t{product.parts()} * width;
    int32_t upColumn = width;
    if (kept) {
      const BufferAddress& gateUp = step.at(kept);
      gate = elements<BFloat16>(gateUp, row) + column;
      ld = leading<BFloat16>(gateUp);
      upColumn = tiling.n;
    }
    product.multiply(row, rows, {gate, ld}, upColumn);
    step.kernels().activation({.gateUp = gate,
                               .ldGateUp = ld,
                               .act = elements<BFloat16>(act, row) + column,
                               .ldAct = leading<BFloat16>(act),
                               .rows = rows,
                               .inter = width,
                               .kind = tiling.activation,
                               .limit = toFloat(tiling.limit),
                               .upColumn = upColumn});
  });
}

void callGmmActivationGrad(const CpuStep& step, const Task& task, std::byte* scratch) {
  const Product product(step, task, scratch);
  const Family& family = product.family();
  const Tiling& tiling = family.tiling;
  const int32_t column = product.columns().begin, width = product.columns().length();
  const Operands& ids = product.ids();
  const BufferAddress& gateUp = step.at(ids.gateUp);
  const BufferAddress& out = step.at(ids.gateUpGrad);
  BFloat16* const actGrad = product.inScratch();
  forParts(product.range(), [&](int64_t row, int32_t rows) {
    product.multiply(row, rows, {actGrad, width});
    step.kernels().activationGrad({.actGrad = actGrad,
                                   .ldActGrad = width,
                                   .gateUp = elements<BFloat16>(gateUp, row) + column,
                                   .ldGateUp = leading<BFloat16>(gateUp),
                                   .rowWeight = optionalFloats(step, ids.rowWeights, row),
                                   .gateUpGrad = elements<BFloat16>(out, row) + column,
                                   .ldGateUpGrad = leading<BFloat16>(out),
                                   .rowWeightGrad = optionalFloats(step, ids.rowWeightGrad, row),
                                   .rows = rows,
                                   .inter = width,
                                   .kind = tiling.activation,
                                   .limit = toFloat(tiling.limit),
                                   .upColumn = tiling.n,
                                   .upGradColumn = tiling.n,
                                   .weightedAct = optionalResultAt(step, ids.weightedAct, row, column)});
  });
}

ops::ProductTypes findProductTypes(const TaskProgram& program, const Family& family) {
  // what stays in the task is read by a kernel of activations
  const Operands ids = findOperands(family);
  return {program.at(ids.a).type, program.at(ids.b).type, ids.c ? program.at(ids.c).type : DType::kBF16};
}

ops::PackedScales makePackedScales(const TaskProgram& program, const Family& family) {
  if (findProductTypes(program, family) != ops::kGroupsProduct) return {};
  const Operands ids = findOperands(family);
  if (!ids.scaleB) return {.group = family.tiling.k};
  const Block block = *findBlock(program.at(ids.b), program.at(ids.scaleB));
  return {.group = static_cast<int32_t>(isTransposed(family.op, family.tiling) ? block.columns : block.rows),
          .hasZeros = !ids.zeroB.none(),
          .type = program.at(ids.scaleB).type};
}

Status checkProducts(const TaskProgram& program, const ops::KernelSet& kernels) {
  const auto words = [](const ops::ProductTypes& types) {
    return fmt::format("{} by {} into {}", dtypeName(types.a), dtypeName(types.b), dtypeName(types.c));
  };
  for (const Family& family : program.families) {
    const OpInfo& op = findInfo(family.op);
    if (!op.hasFactors()) continue;
    const ops::ProductTypes types = findProductTypes(program, family);
    std::vector<ops::ProductTypes> known(kernels.weightGradTypes.begin(), kernels.weightGradTypes.end());
    if (!op.isSum()) {
      known.clear();
      for (const ops::GmmKernels& each : kernels.gmms) known.push_back(each.types);
    }
    if (std::find(known.begin(), known.end(), types) != known.end()) continue;
    std::string expected;
    for (const ops::ProductTypes& each : known) expected += (expected.empty() ? "" : ", ") + words(each);
    return Error{fmt::format("family '{}' multiplies {}, but the {} kernels multiply {}", family.name,
                             words(types), ops::isaName(kernels.isa), expected)};
  }
  return {};
}

size_t productScratchBytes(const TaskProgram& program, const ops::KernelSet& kernels, const Family& family,
                           int32_t slotSize) {
  const Tiling& t = family.tiling;
  const size_t rows = std::min(slotSize, kRowsInScratch);
  const size_t columns = std::min(t.tileN, t.n);
  const OpInfo& op = findInfo(family.op);
  if (op.isSum()) return kernels.weightGradScratchBytes(std::min(t.tileM, t.m), std::min(t.tileN, t.n));
  if (!op.multiplies()) return 0;
  const bool keeps = op.vector == VectorWork::kNone ||
                     (op.vector == VectorWork::kActivation && findBuffer(family, &Operands::gateUp));
  return kernelScratchBytes(*kernels.find(findProductTypes(program, family)), family) +
         (keeps ? 0 : rows * weightParts(family.op, t) * columns * sizeof(BFloat16));
}

}  // namespace sluice

#include <algorithm>

#include "compiler/analysis/cores.h"
#include "compiler/analysis/tiles.h"
#include "compiler/passes/graph_buffers.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/TypeSwitch.h"
#include "runtime/program/op_table.h"

namespace sluice {

#define GEN_PASS_DEF_FORMTASKS
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::StringRef;
using mlir::Value;

// Whether the node's rows are cut by a larger size than slots have. Pieces never are.
bool isOfGroups(moe::NodeOp node, int32_t slotRows) {
  const moe::SplitAttr split = node.getSplitAttr();
  return split && split.getSpace() == moe::SplitSpace::rows && split.getSize() > slotRows &&
         !llvm::isa<moe::DispatchOp, moe::CombineOp>(*node);
}

// The families of one entry, written behind its nodes.
class EntryFormer {
 public:
  // `separate`: products and all else run on cores of different kinds.
  EntryFormer(mlir::OpBuilder builder, GraphBuffers& buffers, task::EntryOp entry, const TileSizes& sizes,
              int32_t slotRows, bool separate)
      : builder_(builder),
        buffers_(buffers),
        entryName_(entry.getName()),
        sizes_(sizes),
        slotRows_(slotRows),
        separate_(separate) {
    builder_.setInsertionPointToEnd(&entry.getBody().front());
  }

  void add(moe::NodeOp node) {
    llvm::TypeSwitch<mlir::Operation*>(node)
        .Case([&](moe::DispatchOp op) {
          family(node, "", OpKind::kDispatch, "sends", {.n = columns(op.getRows())},
                 {name(op.getTokens()), name(op.getWeights())},
                 {name(op.getRows()), name(op.getRowWeights())});
        })
        .Case([&](moe::GmmOp op) {
          family(node, "", OpKind::kGmm, spaceOf(node, op.getProduct()),
                 product(OpKind::kGmm, op, columns(op.getProduct())),
                 {name(op.getRows()), name(op.getWeight())}, {name(op.getProduct())});
        })
        .Case([&](moe::GmmWeightGradOp op) {
          family(node, "", OpKind::kGmmWeightGrad, isOfTokens(op.getA()) ? "once" : "experts",
                 {.m = columns(op.getA()),
                  .n = columns(op.getB()),
                  .flags = op.getAccumulate() ? infoOf(OpKind::kGmmWeightGrad).accumulate : 0,
                  .alpha = alphaOf(op)},
                 {name(op.getA()), name(op.getB()), name(op.getRowScale())}, {name(op.getGrad())});
        })
        .Case([&](moe::ActivationOp op) {
          family(node, "", OpKind::kActivation, spaceOf(node, op.getAct()),
                 withActivation(op, {.n = columns(op.getAct())}), {name(op.getGateUp())},
                 {name(op.getAct())});
        })
        .Case([&](moe::ActivationGradOp op) {
          family(node, "", OpKind::kActivationGrad, spaceOf(node, op.getActGrad()),
                 withActivation(op, {.n = columns(op.getActGrad())}),
                 {name(op.getActGrad()), name(op.getGateUp()), name(op.getRowWeights())},
                 {name(op.getGateUpGrad()), name(op.getRowWeightGrad())});
        })
        .Case([&](moe::CombineOp op) { addCombine(node, op); })
        .Case([&](moe::AddOp op) {
          family(node, "", OpKind::kAdd, spaceOf(node, op.getSum()), {.n = columns(op.getSum())},
                 {name(op.getA()), name(op.getB())}, {name(op.getSum())});
        })
        .Case([&](moe::ScaleOp op) {
          family(node, "", OpKind::kScale, spaceOf(node, op.getScaled()),
                 {.n = columns(op.getScaled()), .alpha = op.getAlpha().convertToFloat()},
                 {name(op.getValue())}, {name(op.getScaled())});
        })
        .Case([&](moe::GmmActivationOp op) {
          family(node, "", OpKind::kGmmActivation, spaceOf(node, op.getAct()),
                 withActivation(op, product(OpKind::kGmmActivation, op, columns(op.getAct()))),
                 {name(op.getRows()), name(op.getWeight())}, {name(op.getAct()), name(op.getGateUp())});
        })
        .Case([&](moe::GmmActivationGradOp op) {
          family(node, "", OpKind::kGmmActivationGrad, spaceOf(node, op.getGateUpGrad()),
                 withActivation(op, product(OpKind::kGmmActivationGrad, op, columns(op.getGateUp()) / 2)),
                 {name(op.getRows()), name(op.getWeight()), name(op.getGateUp()), name(op.getRowWeights())},
                 {name(op.getGateUpGrad()), name(op.getRowWeightGrad())});
        });
  }

  // False after a family with too many tiles or no core to run on, which was reported.
  bool fits() const { return fits_; }

 private:
  // The way back to the tokens' ranks, and the sum there.
  void addCombine(moe::NodeOp node, moe::CombineOp op) {
    const int32_t hidden = columns(op.getRows());
    const std::string returned =
        buffers_.addTemp(entryName_, node.getNode().str() + ".returned", {task::BufferOp::kPairs, hidden},
                         builder_.getBF16Type(), node->getLoc());
    std::string scalars;
    if (op.getScalars())
      scalars = buffers_.addTemp(entryName_, returned + "_scalars", {task::BufferOp::kPairs},
                                 builder_.getF32Type(), node->getLoc());
    family(node, ".return", OpKind::kCombineReturn, "returns", {.n = hidden},
           {name(op.getRows()), name(op.getScalars())}, {returned, scalars});
    family(node, ".sum", OpKind::kCombineSum, "tokens", {.n = hidden, .k = buffers_.topK()},
           {returned, name(op.getWeights()), scalars}, {name(op.getSum()), name(op.getTokenScalars())});
  }

  // `t` has no tiles yet.
  void family(moe::NodeOp node, StringRef suffix, OpKind op, StringRef space, Tiling t,
              llvm::ArrayRef<std::string> reads, llvm::ArrayRef<std::string> writes) {
    const bool wholeRows = op == OpKind::kGmmActivationGrad && !writes[1].empty();
    cutTiles(op, wholeRows, sizes_, t);
    const int64_t tiles = tilesOf(op, t);
    if (tiles > kMaxTiles) {
      mlir::emitError(node->getLoc()) << "node '" << node.getNode() << "' has " << tiles
                                      << " tiles, expected at most " << kMaxTiles << ": choose larger tiles";
      fits_ = false;
      return;
    }
    const auto number = [&](float value) {
      return value == 0 || value == 1 ? mlir::FloatAttr() : builder_.getF32FloatAttr(value);
    };
    const float limit = toFloat(t.limit);
    const auto tiling = task::TilingAttr::get(
        builder_.getContext(), t.m, t.n, t.k, t.tileM, t.tileN, static_cast<int32_t>(t.flags),
        number(t.alpha), t.activation, limit == 0 ? mlir::FloatAttr() : builder_.getF32FloatAttr(limit));
    const mlir::StringAttr alias =
        node.getAlias() ? builder_.getStringAttr(*node.getAlias()) : mlir::StringAttr();
    const auto kind = task::OpKindAttr::get(builder_.getContext(), static_cast<task::OpKind>(op));
    const CoreKind runsOn = separate_ ? infoOf(op).core : CoreKind::kUnified;
    if (separate_ && runsOn == CoreKind::kUnified) {
      mlir::emitError(node->getLoc())
          << "node '" << node.getNode()
          << "' is a product and vector work in one, but the cores that run these are "
             "apart: expected two nodes";
      fits_ = false;
      return;
    }
    const auto core = task::CoreKindAttr::get(builder_.getContext(), static_cast<task::CoreKind>(runsOn));
    builder_.create<task::FamilyOp>(
        node->getLoc(), builder_.getStringAttr(node.getNode() + suffix), kind, builder_.getStringAttr(space),
        builder_.getI32IntegerAttr(static_cast<int32_t>(tiles)), tiling, core, strings(reads),
        strings(writes), mlir::ArrayAttr(), mlir::ArrayAttr(), alias);
  }

  mlir::ArrayAttr strings(llvm::ArrayRef<std::string> names) {
    llvm::SmallVector<StringRef> refs(names.begin(), names.end());
    return builder_.getStrArrayAttr(refs);
  }

  std::string name(Value value) { return value ? buffers_.nameOf(value) : std::string(); }

  template <class Op>
  static Tiling withActivation(Op op, Tiling tiling) {
    tiling.activation = op.getKind();
    if (op.getLimit()) tiling.limit = toBFloat16(op.getLimit()->convertToFloat());
    return tiling;
  }
  template <class Op>
  static float alphaOf(Op op) {
    return op.getAlpha() ? op.getAlpha()->convertToFloat() : 0;
  }
  template <class Op>
  static Tiling product(OpKind kind, Op op, int32_t width) {
    return {.n = width,
            .k = columns(op.getRows()),
            .flags = op.getTranspose() ? infoOf(kind).transposed : 0,
            .alpha = alphaOf(op)};
  }

  static bool isOfTokens(Value value) { return llvm::cast<moe::MoeTensorType>(value.getType()).hasTokens(); }

  // Of what is computed row by row.
  StringRef spaceOf(moe::NodeOp node, Value value) const {
    if (isOfTokens(value)) return "tokens";
    return isOfGroups(node, slotRows_) ? "groups" : "rows";
  }

  static int32_t columns(Value value) {
    return static_cast<int32_t>(llvm::cast<moe::MoeTensorType>(value.getType()).getShape().back());
  }

  mlir::OpBuilder builder_;
  GraphBuffers& buffers_;
  StringRef entryName_;
  const TileSizes& sizes_;
  const int32_t slotRows_;
  const bool separate_;
  bool fits_ = true;
};

struct FormTasks : impl::FormTasksBase<FormTasks> {
  using FormTasksBase::FormTasksBase;

  void runOnOperation() override {
    const auto graphs = llvm::to_vector(getOperation().getOps<moe::GraphOp>());
    if (graphs.size() != 1) {
      getOperation().emitError() << "has " << graphs.size() << " moe.graph ops, expected one";
      return signalPassFailure();
    }
    if (failed(form(graphs.front()))) return signalPassFailure();
    graphs.front()->erase();
  }

  mlir::LogicalResult form(moe::GraphOp graph) {
    mlir::OpBuilder builder(graph);
    auto program = builder.create<task::ProgramOp>(
        graph.getLoc(), graph.getSymNameAttr(), graph.getRanksAttr(), graph.getExpertsAttr(),
        graph.getTopKAttr(), graph.getMaxTokensAttr(), builder.getI64IntegerAttr(cubeCores == 0 ? cores : 0),
        builder.getI64IntegerAttr(cubeCores), builder.getI64IntegerAttr(vectorCores),
        builder.getStringAttr(target),
        optionLine.empty() ? mlir::StringAttr() : builder.getStringAttr(optionLine),
        graphHash == 0 ? mlir::IntegerAttr()
                       : builder.getI64IntegerAttr(static_cast<int64_t>(graphHash.getValue())),
        graph.getSymbols());
    program.getBody().emplaceBlock();
    builder.setInsertionPointToEnd(&program.getBody().front());
    const int32_t slotRows = slotRowsOf(graph);
    addSpaces(builder, graph, slotRows);
    GraphBuffers buffers(builder, graph);
    const TileSizes sizes{gmmColumns, gradRows, gradColumns};
    for (auto entry : graph.getOps<moe::EntryOp>()) {
      buffers.enter(entry);
      auto made = builder.create<task::EntryOp>(entry.getLoc(), entry.getSymNameAttr(), buffers.idsOf(entry),
                                                buffers.routingOf(entry));
      made.getBody().emplaceBlock();
      if (entry == *graph.getOps<moe::EntryOp>().begin()) buffers.insertBefore(made);
      EntryFormer former(builder, buffers, made, sizes, slotRows, cubeCores != 0);
      for (auto node : entry.getOps<moe::NodeOp>()) former.add(node);
      if (!former.fits()) return mlir::failure();
    }
    return mlir::success();
  }

  // Sums over all tokens are the only tasks of space once; other programs do not have it.
  static bool hasDenseWeightGrad(moe::GraphOp graph) {
    const auto visit = [](moe::GmmWeightGradOp node) {
      const bool dense = llvm::cast<moe::MoeTensorType>(node.getA().getType()).hasTokens();
      return dense ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
    };
    return graph.walk(visit).wasInterrupted();
  }

  // The smaller of the sizes by which rows are cut.
  static int32_t slotRowsOf(moe::GraphOp graph) {
    int64_t least = 0;
    graph.walk([&](moe::NodeOp node) {
      const moe::SplitAttr split = node.getSplitAttr();
      if (!split || split.getSpace() != moe::SplitSpace::rows) return;
      least = least == 0 ? split.getSize() : std::min(least, split.getSize());
    });
    return least == 0 ? 16 : static_cast<int32_t>(least);
  }

  void addSpaces(mlir::OpBuilder& builder, moe::GraphOp graph, int32_t rowsSlot) {
    int32_t tokensSlot = tokens, groups = 0;
    graph.walk([&](moe::NodeOp node) {
      const moe::SplitAttr split = node.getSplitAttr();
      if (!split) return;
      if (split.getSpace() == moe::SplitSpace::tokens) tokensSlot = static_cast<int32_t>(split.getSize());
      if (isOfGroups(node, rowsSlot)) groups = static_cast<int32_t>(split.getSize());
    });
    const auto add = [&](task::SpaceKind kind, int32_t slot, int32_t window) {
      builder.create<task::SpaceOp>(graph.getLoc(), task::stringifySpaceKind(kind), kind,
                                    static_cast<uint32_t>(slot), static_cast<uint32_t>(window));
    };
    add(task::SpaceKind::tokens, tokensSlot, tokensWindow);
    add(task::SpaceKind::rows, rowsSlot, rowsWindow);
    add(task::SpaceKind::sends, rowsSlot, sendsWindow);
    add(task::SpaceKind::returns, rowsSlot, returnsWindow);
    add(task::SpaceKind::experts, 1, expertsWindow);
    if (hasDenseWeightGrad(graph)) add(task::SpaceKind::once, 1, 1);
    // about as many rows a window as of slots
    if (groups > 0)
      add(task::SpaceKind::groups, groups,
          static_cast<int32_t>(std::max<int64_t>(1, int64_t{rowsWindow} * rowsSlot / groups)));
  }
};

}  // namespace
}  // namespace sluice

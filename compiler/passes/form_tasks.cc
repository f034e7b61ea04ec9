#include <algorithm>

#include "compiler/analysis/cores.h"
#include "compiler/analysis/tiles.h"
#include "compiler/passes/graph_buffers.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/TypeSwitch.h"

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
          family(node, "", task::OpKind::dispatch, "sends", shapeRows(columns(op.getRows())),
                 {name(op.getTokens()), name(op.getWeights())},
                 {name(op.getRows()), name(op.getRowWeights())});
        })
        .Case([&](moe::GmmOp op) {
          family(node, "", task::OpKind::gmm, spaceOf(node, op.getProduct()),
                 shapeGmm(columns(op.getProduct()), columns(op.getRows()), op.getTranspose(), sizes_,
                          alphaOf(op)),
                 {name(op.getRows()), name(op.getWeight())}, {name(op.getProduct())});
        })
        .Case([&](moe::GmmWeightGradOp op) {
          family(node, "", task::OpKind::gmm_weight_grad, isOfTokens(op.getA()) ? "once" : "experts",
                 shapeWeightGrad(columns(op.getA()), columns(op.getB()), sizes_, op.getAccumulate(),
                                 alphaOf(op)),
                 {name(op.getA()), name(op.getB()), name(op.getRowScale())}, {name(op.getGrad())});
        })
        .Case([&](moe::ActivationOp op) {
          family(node, "", task::OpKind::activation, spaceOf(node, op.getAct()),
                 shapeActivation(columns(op.getAct()), functionOf(op)), {name(op.getGateUp())},
                 {name(op.getAct())});
        })
        .Case([&](moe::ActivationGradOp op) {
          family(node, "", task::OpKind::activation_grad, spaceOf(node, op.getActGrad()),
                 shapeActivation(columns(op.getActGrad()), functionOf(op)),
                 {name(op.getActGrad()), name(op.getGateUp()), name(op.getRowWeights())},
                 {name(op.getGateUpGrad()), name(op.getRowWeightGrad())});
        })
        .Case([&](moe::CombineOp op) { addCombine(node, op); })
        .Case([&](moe::AddOp op) {
          family(node, "", task::OpKind::add, spaceOf(node, op.getSum()), shapeRows(columns(op.getSum())),
                 {name(op.getA()), name(op.getB())}, {name(op.getSum())});
        })
        .Case([&](moe::ScaleOp op) {
          family(node, "", task::OpKind::scale, spaceOf(node, op.getScaled()),
                 shapeScale(columns(op.getScaled()), op.getAlpha().convertToFloat()), {name(op.getValue())},
                 {name(op.getScaled())});
        })
        .Case([&](moe::GmmActivationOp op) {
          family(node, "", task::OpKind::gmm_activation, spaceOf(node, op.getAct()),
                 shapeGmmActivation(columns(op.getAct()), columns(op.getRows()), op.getTranspose(),
                                    functionOf(op), sizes_, alphaOf(op)),
                 {name(op.getRows()), name(op.getWeight())}, {name(op.getAct()), name(op.getGateUp())});
        })
        .Case([&](moe::GmmActivationGradOp op) {
          family(
              node, "", task::OpKind::gmm_activation_grad, spaceOf(node, op.getGateUpGrad()),
              shapeGmmActivationGrad(columns(op.getGateUp()) / 2, columns(op.getRows()), op.getTranspose(),
                                     functionOf(op), op.getRowWeightGrad() != nullptr, sizes_, alphaOf(op)),
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
    family(node, ".return", task::OpKind::combine_return, "returns", shapeRows(hidden),
           {name(op.getRows()), name(op.getScalars())}, {returned, scalars});
    family(node, ".sum", task::OpKind::combine_sum, "tokens", shapeRows(hidden, buffers_.topK()),
           {returned, name(op.getWeights()), scalars}, {name(op.getSum()), name(op.getTokenScalars())});
  }

  void family(moe::NodeOp node, StringRef suffix, task::OpKind op, StringRef space, const FamilyShape& shape,
              llvm::ArrayRef<std::string> reads, llvm::ArrayRef<std::string> writes) {
    if (shape.tiles > kMaxTiles) {
      mlir::emitError(node->getLoc()) << "node '" << node.getNode() << "' has " << shape.tiles
                                      << " tiles, expected at most " << kMaxTiles << ": choose larger tiles";
      fits_ = false;
      return;
    }
    const Tiling& t = shape.tiling;
    const auto tiling = task::TilingAttr::get(
        builder_.getContext(), t.m, t.n, t.k, t.tileM, t.tileN, static_cast<int32_t>(t.flags),
        t.alpha == 0 ? mlir::FloatAttr() : builder_.getF32FloatAttr(t.alpha));
    const mlir::StringAttr alias =
        node.getAlias() ? builder_.getStringAttr(*node.getAlias()) : mlir::StringAttr();
    const auto kind = task::OpKindAttr::get(builder_.getContext(), op);
    const CoreKind runsOn = separate_ ? separateCoreOf(static_cast<OpKind>(op)) : CoreKind::kUnified;
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
        builder_.getI32IntegerAttr(static_cast<int32_t>(shape.tiles)), tiling, core, strings(reads),
        strings(writes), mlir::ArrayAttr(), mlir::ArrayAttr(), alias);
  }

  mlir::ArrayAttr strings(llvm::ArrayRef<std::string> names) {
    llvm::SmallVector<StringRef> refs(names.begin(), names.end());
    return builder_.getStrArrayAttr(refs);
  }

  std::string name(Value value) { return value ? buffers_.nameOf(value) : std::string(); }

  template <class Op>
  static ActivationFunction functionOf(Op op) {
    return {static_cast<uint32_t>(op.getKind()), op.getLimit() ? op.getLimit()->convertToFloat() : 0};
  }
  template <class Op>
  static float alphaOf(Op op) {
    return op.getAlpha() ? op.getAlpha()->convertToFloat() : 1;
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

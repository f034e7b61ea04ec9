// Roundings of the factors of products, before derivation, which carries them on.
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/passes.h"

namespace sluice {

#define GEN_PASS_DEF_ROUNDPRODUCTS
#include "compiler/passes/passes.h.inc"

namespace {

struct RoundProducts : impl::RoundProductsBase<RoundProducts> {
  using RoundProductsBase::RoundProductsBase;

  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(round(graph))) return signalPassFailure();
  }

  mlir::LogicalResult round(moe::GraphOp graph) {
    const auto entries = graph.getOps<moe::EntryOp>();
    if (std::distance(entries.begin(), entries.end()) > 1)
      return graph.emitError("graph '")
             << graph.getSymName()
             << "' has several entries, expected one: which products read gradients is "
                "known where the backward is derived";
    mlir::WalkResult result = graph.walk([](moe::GmmWeightGradOp grad) {
      moe::nodeError(grad)
          << " is a weight gradient of the graph, expected a graph whose backward is derived";
      return mlir::WalkResult::interrupt();
    });
    if (result.wasInterrupted()) return mlir::failure();
    const auto attribute = [&](Rounding rounding) { return moe::RoundingAttr::get(&getContext(), rounding); };
    const auto inputs = attribute(amax    ? Rounding::kE4m3
                                  : floor ? Rounding::kMxE4m3Floor
                                          : Rounding::kMxE4m3);
    const auto squared = attribute(floor ? Rounding::kMxE4m3SquareFloor : Rounding::kMxE4m3Square);
    const auto grads = attribute(!hybrid ? inputs.getValue()
                                 : amax  ? Rounding::kE5m2
                                 : floor ? Rounding::kMxE5m2Floor
                                         : Rounding::kMxE5m2);
    graph.walk([&](moe::GmmOp product) {
      product.setRoundAAttr(inputs);
      product.setRoundBAttr(squares ? squared : inputs);
      product.setRoundGradsAttr(grads);
    });
    return mlir::success();
  }
};

}  // namespace
}  // namespace sluice

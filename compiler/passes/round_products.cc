// Roundings of the factors of products, before derivation, which carries them on.
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/passes.h"
#include "runtime/base/encodings.h"

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
    const Expected<Encodings> encodings = parseEncodings(std::string(encode));
    if (!encodings) return graph.emitError() << encodings.error().message;
    if (!encodings->rows->rounds())
      return graph.emitError("encode: products round nothing to '") << encode << "'";
    const auto attribute = [&](const Encoding* each) {
      return moe::RoundingAttr::get(&getContext(), each->rounding);
    };
    graph.walk([&](moe::GmmOp product) {
      product.setRoundAAttr(attribute(encodings->rows));
      product.setRoundBAttr(attribute(encodings->trained));
      product.setRoundGradsAttr(attribute(encodings->grads));
    });
    return mlir::success();
  }
};

}  // namespace
}  // namespace sluice

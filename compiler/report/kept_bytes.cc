#include "compiler/report/kept_bytes.h"

#include "compiler/dialect/moe_gradient.h"

namespace sluice {
namespace {

// Adds or subtracts the bytes of a tensor of rows or tokens.
void add(KeptBytes& kept, mlir::Value value, int64_t sign) {
  const auto type = llvm::dyn_cast<moe::MoeTensorType>(value.getType());
  if (!type || (!type.hasRows() && !type.hasTokens())) return;
  int64_t bytes = sign * type.getElementType().getIntOrFloatBitWidth() / 8;
  for (int64_t dim : type.getShape().drop_front()) bytes *= dim;
  (type.hasRows() ? kept.row : kept.token) += bytes;
}

}  // namespace

KeptBytes keptBytes(moe::GraphOp graph) {
  KeptBytes kept;
  graph.walk([&](moe::SaveOp save) { add(kept, save.getValue(), 1); });
  return kept;
}

// 1. If activations are recomputed, the recomputable nodes of the derived entry would be saved instead.
// 2. Else the forward has saved everything, in the order of its nodes.
KeptBytes keptBytesOtherwise(moe::GraphOp graph, bool minimal) {
  KeptBytes kept = keptBytes(graph);
  for (auto entry : graph.getOps<moe::EntryOp>()) {
    if (minimal) {
      for (auto node : entry.getOps<moe::DifferentiableOp>())
        if (entry.getAfter() && node.isRecomputable()) add(kept, node->getResult(0), 1);
      continue;
    }
    std::vector<mlir::Value> saved;
    for (auto save : entry.getOps<moe::SaveOp>()) saved.push_back(save.getValue());
    for (mlir::Value value : moe::recomputable(saved)) add(kept, value, -1);
  }
  return kept;
}

}  // namespace sluice

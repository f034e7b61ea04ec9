#include "compiler/report/kept_bytes.h"

#include "compiler/dialect/moe_gradient.h"
#include "llvm/ADT/SetVector.h"

namespace sluice {
namespace {

// Whether a later entry is given the tokens for something else than to dispatch them.
bool isGivenAgain(mlir::Value tokens, moe::GraphOp graph) {
  auto input = tokens.getDefiningOp<moe::InputOp>();
  return input && llvm::any_of(graph.getOps<moe::EntryOp>(), [&](moe::EntryOp entry) {
           return entry.getAfter() && llvm::any_of(entry.getOps<moe::InputOp>(), [&](moe::InputOp other) {
                    return other.getTensor() == input.getTensor() &&
                           llvm::any_of(other->getUsers(), [](mlir::Operation* user) {
                             return !llvm::isa<moe::DispatchOp>(user);
                           });
                  });
         });
}

// Adds or subtracts the bytes of a tensor of rows or tokens.
void add(KeptBytes& kept, mlir::Value value, int64_t sign, bool inPlace) {
  if (auto dispatch = value.getDefiningOp<moe::DispatchOp>(); dispatch && inPlace) {
    value = dispatch.getTokens();
    if (isGivenAgain(value, dispatch->getParentOfType<moe::GraphOp>())) return;
  }
  const auto type = llvm::dyn_cast<moe::MoeTensorType>(value.getType());
  if (!type || (!type.hasRows() && !type.hasTokens())) return;
  int64_t bytes = sign * type.getElementType().getIntOrFloatBitWidth() / 8;
  for (int64_t dim : type.getShape().drop_front()) bytes *= dim;
  (type.hasRows() ? kept.row : kept.token) += bytes;
}

// Whether a node of a derived entry dispatches tokens that an earlier entry has, too: no gradients.
bool isDispatchedAgain(moe::DifferentiableOp node, moe::GraphOp graph) {
  auto dispatch = llvm::dyn_cast<moe::DispatchOp>(*node);
  if (!dispatch) return false;
  if (dispatch.getTokens().getDefiningOp<moe::SavedOp>()) return true;
  auto tokens = dispatch.getTokens().getDefiningOp<moe::InputOp>();
  const auto isTokens = [&](moe::InputOp input) { return tokens && input.getTensor() == tokens.getTensor(); };
  return llvm::any_of(graph.getOps<moe::EntryOp>(), [&](moe::EntryOp entry) {
    return !entry.getAfter() && llvm::any_of(entry.getOps<moe::InputOp>(), isTokens);
  });
}

// What codes and their scales stand for; other values themselves.
mlir::Value numbersOf(mlir::Value saved) {
  auto encode = saved.getDefiningOp<moe::EncodeOp>();
  return encode ? encode.getValue() : saved;
}

}  // namespace

KeptBytes keptBytes(moe::GraphOp graph, bool inPlace) {
  KeptBytes kept;
  graph.walk([&](moe::SaveOp save) { add(kept, save.getValue(), 1, inPlace); });
  return kept;
}

// 1. If activations are recomputed, or rows dispatched again, these nodes of the derived entry would be saved
// instead. 2. Else the forward has saved everything, in the order of its nodes.
KeptBytes keptBytesOtherwise(moe::GraphOp graph, bool keepsLittle, bool inPlace) {
  KeptBytes kept = keptBytes(graph, inPlace);
  for (auto entry : graph.getOps<moe::EntryOp>()) {
    if (keepsLittle) {
      for (auto node : entry.getOps<moe::DifferentiableOp>())
        if (entry.getAfter() && (node.isRecomputable() || isDispatchedAgain(node, graph)))
          add(kept, node->getResult(0), 1, inPlace);
      continue;
    }
    llvm::SetVector<mlir::Value> saved;
    for (auto save : entry.getOps<moe::SaveOp>()) saved.insert(numbersOf(save.getValue()));
    const auto removed = moe::recomputable(saved.getArrayRef(), moe::Keep::kMinimal);
    for (auto save : entry.getOps<moe::SaveOp>())
      if (removed.contains(numbersOf(save.getValue()))) add(kept, save.getValue(), -1, inPlace);
  }
  return kept;
}

}  // namespace sluice

#include "compiler/dialect/node_operands.h"

#include "runtime/program/words.h"

namespace sluice::moe {
namespace {

// The values for `count` rows of the op table: a routing is no operand of a program, and codes that are
// dispatched have no weights.
llvm::SmallVector<mlir::Value> inTableOrder(mlir::Operation* node, llvm::SmallVector<mlir::Value> values,
                                            size_t count) {
  llvm::erase_if(values, [](mlir::Value value) { return value && llvm::isa<RoutingType>(value.getType()); });
  if (llvm::isa<DispatchCodesOp>(node)) values.insert(values.begin() + 1, mlir::Value());
  values.resize(count);
  return values;
}

}  // namespace

std::optional<OpKind> findOpKind(mlir::Operation* node) {
  if (isDispatch(node)) return OpKind::kDispatch;
  return text::fromWord<OpKind>(std::string_view(node->getName().stripDialect()));
}

llvm::SmallVector<mlir::Value> collectOperands(mlir::Operation* node) {
  const auto segments = node->getAttrOfType<mlir::DenseI32ArrayAttr>("operandSegmentSizes");
  if (!segments) return {node->operand_begin(), node->operand_end()};
  llvm::SmallVector<mlir::Value> operands;
  auto next = node->operand_begin();
  for (const int32_t count : segments.asArrayRef()) operands.push_back(count > 0 ? *next++ : mlir::Value());
  return operands;
}

llvm::SmallVector<mlir::Value> collectResults(mlir::Operation* node) {
  llvm::SmallVector<mlir::Value> results(node->result_begin(), node->result_end());
  if (node->hasAttr(kGivesAct))  // the result before it may be absent
    results.insert(results.end() - 1, findInfo(*findOpKind(node)).writes.size() - results.size(),
                   mlir::Value());
  return results;
}

llvm::SmallVector<mlir::Value> collectReads(mlir::Operation* node) {
  return inTableOrder(node, collectOperands(node), findInfo(*findOpKind(node)).reads.size());
}

llvm::SmallVector<mlir::Value> collectWrites(mlir::Operation* node) {
  return inTableOrder(node, collectResults(node), findInfo(*findOpKind(node)).writes.size());
}

}  // namespace sluice::moe

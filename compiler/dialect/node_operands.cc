#include "compiler/dialect/node_operands.h"

#include "runtime/program/words.h"

namespace sluice::moe {
namespace {

// The values of a dispatch as its op has them: a routing is no operand of a program, and codes have no
// weights.
llvm::SmallVector<mlir::Value> inTableOrder(mlir::Operation* node, llvm::SmallVector<mlir::Value> values) {
  llvm::erase_if(values, [](mlir::Value value) { return value && llvm::isa<RoutingType>(value.getType()); });
  if (llvm::isa<DispatchCodesOp>(node)) values.insert(values.begin() + 1, mlir::Value());
  return values;
}

mlir::Value findIn(std::span<const OperandInfo> operands, llvm::ArrayRef<mlir::Value> values,
                   OperandName name) {
  for (size_t i = 0; i < operands.size() && i < values.size(); ++i)
    if (operands[i].id == name) return values[i];
  return {};
}

}  // namespace

std::optional<OpKind> opOf(mlir::Operation* node) {
  if (isDispatch(node)) return OpKind::kDispatch;
  return text::fromWord<OpKind>(std::string_view(node->getName().stripDialect()));
}

llvm::SmallVector<mlir::Value> operandsOf(mlir::Operation* node) {
  const auto segments = node->getAttrOfType<mlir::DenseI32ArrayAttr>("operandSegmentSizes");
  if (!segments) return {node->operand_begin(), node->operand_end()};
  llvm::SmallVector<mlir::Value> operands;
  auto next = node->operand_begin();
  for (const int32_t count : segments.asArrayRef()) operands.push_back(count > 0 ? *next++ : mlir::Value());
  return operands;
}

llvm::SmallVector<mlir::Value> resultsOf(mlir::Operation* node) {
  llvm::SmallVector<mlir::Value> results(node->result_begin(), node->result_end());
  if (node->hasAttr("gives_act"))  // that is the last, and the one before it may be absent
    results.insert(results.end() - 1, infoOf(*opOf(node)).writes.size() - results.size(), mlir::Value());
  return results;
}

mlir::Value valueOf(mlir::Operation* node, OperandName operand) {
  const OpInfo& op = infoOf(*opOf(node));
  const mlir::Value read = findIn(op.reads, inTableOrder(node, operandsOf(node)), operand);
  return read ? read : findIn(op.writes, inTableOrder(node, resultsOf(node)), operand);
}

}  // namespace sluice::moe

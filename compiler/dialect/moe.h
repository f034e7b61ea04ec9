// The `moe` dialect: graph-level ops of one MoE-FFN layer. moe.td specifies the meaning of each op.
//
// Ops, types and attributes belong to their MLIRContext. Node ops are free of side effects and carry the
// NodeOp interface; moe.graph and moe.entry hold their contents in one block without a terminator.
#pragma once

#include <optional>
#include <string>

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "runtime/program/op_table.h"
#include "runtime/program/words.h"

namespace sluice {

// Parses a word of program.fbs, for the attributes of the dialect.
template <class E>
mlir::FailureOr<E> parseEnumWord(mlir::AsmParser& parser) {
  const mlir::SMLoc location = parser.getCurrentLocation();
  std::string word;
  if (parser.parseKeywordOrString(&word)) return mlir::failure();
  if (const auto value = text::fromWord<E>(word)) return *value;
  return parser.emitError(location) << "found '" << word << "', expected " << text::wordList<E>();
}

}  // namespace sluice

// Generated from moe.td; MLIR's generators leave parameters unused.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "compiler/dialect/moe_dialect.h.inc"
#include "compiler/dialect/moe_enums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/dialect/moe_types.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/moe_attrs.h.inc"

namespace sluice::moe {

class GradientBuilder;  // moe_gradient.h

// The checks common to all nodes: names, result names, the space of the split.
mlir::LogicalResult verifyNode(mlir::Operation* op);

}  // namespace sluice::moe

#include "compiler/dialect/moe_gradient_interface.h.inc"
#include "compiler/dialect/moe_interface.h.inc"

namespace sluice::moe {

// The attribute of nodes that add to the old content of an output.
inline constexpr llvm::StringLiteral kAccumulate = "accumulate";
// That of gradients of activations that give the weighted activation as their last result.
inline constexpr llvm::StringLiteral kGivesAct = "gives_act";

// Checks the tensors of a node by the row of its op.
mlir::LogicalResult checkTensors(NodeOp node);

// An error at the node, which begins with "node 'NAME'".
mlir::InFlightDiagnostic nodeError(NodeOp node);

// Whether the op sums over the rows of each expert, or over all tokens: the gradient of a weight or a bias.
bool isSum(mlir::Operation* op);
// Whether a node sends tokens to the ranks of their experts.
bool isDispatch(mlir::Operation* op);

// Gives the attribute to all sums in `root`.
void accumulateAll(mlir::Operation* root);

// The op of a program (runtime/program/op_table.h) that the node becomes; none: a route, or a combine, which
// becomes two.
std::optional<OpKind> findOpKind(mlir::Operation* node);

// All operands, and all results, in the order of moe.td; null where one is absent before the last.
llvm::SmallVector<mlir::Value> collectOperands(mlir::Operation* node);
llvm::SmallVector<mlir::Value> collectResults(mlir::Operation* node);

// What a node that becomes one op reads, and what it gives: a value for each row of the op's reads and
// writes, null where that is absent.
llvm::SmallVector<mlir::Value> collectReads(mlir::Operation* node);
llvm::SmallVector<mlir::Value> collectWrites(mlir::Operation* node);

// Names the results of a node after their tensors, for readable IR.
void nameResults(NodeOp node, mlir::OpAsmSetValueNameFn setName);

// The name of a tensor: the name of the input, saved tensor or node result that defines `value`. Empty if a
// node does not name its results.
llvm::StringRef tensorName(mlir::Value value);

// Names of graphs, entries, nodes and tensors: a letter or underscore, then letters, digits, underscores;
// at most 64 characters.
bool isValidName(llvm::StringRef name);

// "[R x 2048 x bf16]", or "routing".
std::string shapeText(mlir::Type type);

// How many codes an element has: 2 of 4 bits in ui8, else 1.
int64_t codesIn(mlir::Type element);

// The shape of a tensor in numbers, of which the last dimension has codesIn() per element.
llvm::SmallVector<int64_t> numbersIn(MoeTensorType type);

}  // namespace sluice::moe

#define GET_OP_CLASSES
#include "compiler/dialect/moe_ops.h.inc"
#pragma GCC diagnostic pop

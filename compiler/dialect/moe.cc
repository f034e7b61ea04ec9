// Types, attributes and registration of the `moe` dialect; the operands of its nodes.
#include "compiler/dialect/moe.h"

#include "compiler/dialect/element_type.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/IR/DialectImplementation.h"
#include "runtime/program/program.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "compiler/dialect/moe_dialect.cc.inc"
#include "compiler/dialect/moe_enums.cc.inc"
#include "compiler/dialect/moe_gradient_interface.cc.inc"
#include "compiler/dialect/moe_interface.cc.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/dialect/moe_types.cc.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/moe_attrs.cc.inc"
#define GET_OP_CLASSES
#include "compiler/dialect/moe_ops.cc.inc"
#pragma GCC diagnostic pop

namespace sluice::moe {

using llvm::ArrayRef;
using llvm::StringRef;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;

void MoeDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "compiler/dialect/moe_ops.cc.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/dialect/moe_types.cc.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialect/moe_attrs.cc.inc"
      >();
}

// --- Types ---------------------------------------------------------------------------------------------

namespace {

// One dimension and the `x` after it; nothing where the element type begins.
mlir::OptionalParseResult parseDim(mlir::AsmParser& parser, int64_t& dim) {
  StringRef extent;
  if (succeeded(parser.parseOptionalKeyword(&extent, {"T", "R", "E"}))) {
    dim = extent == "T"   ? MoeTensorType::kTokens
          : extent == "R" ? MoeTensorType::kRows
                          : MoeTensorType::kExperts;
    return parser.parseKeyword("x");
  }
  const llvm::SMLoc location = parser.getCurrentLocation();
  const mlir::OptionalParseResult number = parser.parseOptionalInteger(dim);
  if (!number.has_value() || failed(*number)) return number;
  if (dim < 1) return parser.emitError(location, "dimension is ") << dim << ", expected at least 1";
  return parser.parseKeyword("x");
}

void printShape(llvm::raw_ostream& os, MoeTensorType type) {
  for (int64_t dim : type.getShape()) {
    if (dim == MoeTensorType::kTokens) {
      os << "T x ";
    } else if (dim == MoeTensorType::kRows) {
      os << "R x ";
    } else if (dim == MoeTensorType::kExperts) {
      os << "E x ";
    } else {
      os << dim << " x ";
    }
  }
}

}  // namespace

mlir::Type MoeTensorType::parse(mlir::AsmParser& parser) {
  if (parser.parseLess()) return {};
  llvm::SmallVector<int64_t> shape;
  for (;;) {
    int64_t dim = 0;
    const mlir::OptionalParseResult result = parseDim(parser, dim);
    if (!result.has_value()) break;
    if (failed(*result)) return {};
    shape.push_back(dim);
  }
  mlir::Type elementType;
  if (parser.parseType(elementType) || parser.parseGreater()) return {};
  return parser.getChecked<MoeTensorType>(parser.getContext(), shape, elementType);
}

void MoeTensorType::print(mlir::AsmPrinter& printer) const {
  printer << "<";
  printShape(printer.getStream(), *this);
  printer << getElementType() << ">";
}

LogicalResult MoeTensorType::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                    ArrayRef<int64_t> shape, mlir::Type elementType) {
  if (shape.empty() || shape.size() > 3)
    return emitError() << "tensor has " << shape.size() << " dimensions, expected 1 to 3";
  const auto isExtent = [](int64_t dim) { return dim == kTokens || dim == kRows || dim == kExperts; };
  for (int64_t dim : shape.drop_front()) {
    if (isExtent(dim)) return emitError() << "only the leading dimension may be T, R or E";
  }
  const bool symbolic = isExtent(shape.front());
  for (int64_t dim : symbolic ? shape.drop_front() : shape) {
    if (dim < 1 || dim > kMaxDim) {
      return emitError() << "dimension is " << dim << ", expected 1 to " << kMaxDim;
    }
  }
  if (isGraphType(findDType(elementType))) return success();
  auto error = emitError() << "element type " << elementType << " is not supported, expected one of ";
  llvm::interleaveComma(kGraphTypes, error,
                        [&](DType type) { error << mlirElementType(elementType.getContext(), type); });
  return error;
}

std::string shapeText(mlir::Type type) {
  const auto tensor = mlir::dyn_cast<MoeTensorType>(type);
  if (!tensor) return "routing";
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "[";
  printShape(os, tensor);
  os << tensor.getElementType() << "]";
  return text;
}

// --- Attributes ----------------------------------------------------------------------------------------

LogicalResult SplitAttr::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError, SplitSpace space,
                                int64_t size) {
  if (size < 0 || size > kMaxTokens)
    return emitError() << "split of '" << stringifySplitSpace(space) << "' has size " << size
                       << ", expected 0 (the producer's) to " << kMaxTokens;
  if (space == SplitSpace::experts && size > 1)
    return emitError() << "split of 'experts' has size " << size << ", expected 0 or 1";
  return success();
}

// --- Names ---------------------------------------------------------------------------------------------

bool isValidName(StringRef name) {
  const auto isWord = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  return !name.empty() && name.size() <= 64 && !llvm::isDigit(name.front()) && llvm::all_of(name, isWord);
}

void nameResults(NodeOp node, mlir::OpAsmSetValueNameFn setName) {
  const mlir::ArrayAttr tensors = node.getTensorsAttr();
  if (!tensors || tensors.size() != node->getNumResults()) return;
  for (auto [result, name] : llvm::zip(node->getResults(), tensors.getAsValueRange<mlir::StringAttr>()))
    setName(result, name);
}

mlir::InFlightDiagnostic nodeError(NodeOp node) { return node->emitError("node '") << node.getNode() << "'"; }

bool isDispatch(mlir::Operation* op) { return mlir::isa<DispatchOp, DispatchCodesOp>(op); }

bool isSum(mlir::Operation* op) {
  if (auto encode = mlir::dyn_cast<EncodeOp>(op)) return encode.isDown();
  return mlir::isa<GmmWeightGradOp, ColumnSumOp, AmaxOp>(op);
}

void accumulateAll(mlir::Operation* root) {
  root->walk([](mlir::Operation* op) {
    if (mlir::isa<GmmWeightGradOp, ColumnSumOp>(op))
      op->setAttr(kAccumulate, mlir::UnitAttr::get(op->getContext()));
  });
}

StringRef tensorName(mlir::Value value) {
  mlir::Operation* op = value.getDefiningOp();
  if (auto input = mlir::dyn_cast_if_present<InputOp>(op)) return input.getTensor();
  if (auto saved = mlir::dyn_cast_if_present<SavedOp>(op)) return saved.getTensor();
  auto node = mlir::dyn_cast_if_present<NodeOp>(op);
  if (!node || !node.getTensorsAttr()) return {};
  const unsigned index = mlir::cast<mlir::OpResult>(value).getResultNumber();
  return mlir::cast<mlir::StringAttr>(node.getTensorsAttr()[index]).getValue();
}

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

#include "compiler/dialect/task.h"

#include "llvm/ADT/TypeSwitch.h"
#include "mlir/IR/DialectImplementation.h"
#include "runtime/program/program.h"

namespace {

// `[R, 768]`: run-time extents by their letter.
mlir::ParseResult parseShape(mlir::OpAsmParser& parser, mlir::DenseI64ArrayAttr& shape) {
  llvm::SmallVector<int64_t> dims;
  const auto parseDim = [&]() -> mlir::ParseResult {
    int64_t size = 0;
    if (const mlir::OptionalParseResult number = parser.parseOptionalInteger(size); number.has_value()) {
      dims.push_back(size);
      return *number;
    }
    llvm::StringRef letter;
    if (parser.parseKeyword(&letter)) return mlir::failure();
    const std::optional<sluice::task::Extent> extent = sluice::task::symbolizeExtent(letter);
    if (!extent || *extent == sluice::task::Extent::fixed)
      return parser.emitError(parser.getCurrentLocation())
             << "expected a number, T, R, P or E as a dimension, found '" << letter << "'";
    dims.push_back(-static_cast<int64_t>(*extent));
    return mlir::success();
  };
  if (parser.parseCommaSeparatedList(mlir::OpAsmParser::Delimiter::Square, parseDim)) return mlir::failure();
  shape = mlir::DenseI64ArrayAttr::get(parser.getContext(), dims);
  return mlir::success();
}

void printShape(mlir::OpAsmPrinter& printer, mlir::Operation*, mlir::DenseI64ArrayAttr shape) {
  printer << '[';
  llvm::interleaveComma(shape.asArrayRef(), printer, [&](int64_t dim) {
    if (dim >= 0) {
      printer << dim;
    } else {
      printer << sluice::task::stringifyExtent(static_cast<sluice::task::Extent>(-dim));
    }
  });
  printer << ']';
}

}  // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "compiler/dialect/task_dialect.cc.inc"
#include "compiler/dialect/task_enums.cc.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/task_attrs.cc.inc"
#define GET_OP_CLASSES
#include "compiler/dialect/task_ops.cc.inc"
#pragma GCC diagnostic pop

namespace sluice::task {

// The enums of the dialect are cast to those of the program: same values, whichever is edited.
static_assert(static_cast<int>(SpaceKind::groups) == static_cast<int>(sluice::SpaceKind::kGroups));
static_assert(static_cast<int>(Extent::E) == static_cast<int>(sluice::Extent::kExperts));
static_assert(static_cast<int>(Role::saved) == static_cast<int>(sluice::Role::kSaved));
static_assert(static_cast<int>(EventSpace::groups) == static_cast<int>(sluice::EventSpace::kGroups));
static_assert(static_cast<int>(EventUnit::rows) == static_cast<int>(sluice::EventUnit::kRows));
static_assert(static_cast<int>(ThresholdRule::experts_of_rank) ==
              static_cast<int>(sluice::ThresholdRule::kExpertsOfRank));
static_assert(static_cast<int>(OpKind::gmm_activation_grad) ==
              static_cast<int>(sluice::OpKind::kGmmActivationGrad));
static_assert(static_cast<int>(CoreKind::vector) == static_cast<int>(sluice::CoreKind::kVector));

void TaskDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialect/task_attrs.cc.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "compiler/dialect/task_ops.cc.inc"
      >();
}

}  // namespace sluice::task

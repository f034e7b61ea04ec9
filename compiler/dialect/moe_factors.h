// The forms of the factors of products, for the verifiers of the nodes: scales and zeros of codes, and
// roundings. The caller has checked the shapes of the factors themselves. Errors are reported at the node.
#pragma once

#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe.h"
#include "runtime/base/dtype.h"
#include "runtime/base/encoding.h"
#include "runtime/base/rounding.h"

namespace sluice::moe {

inline mlir::Type scalarType(mlir::Value value) {
  return mlir::cast<MoeTensorType>(value.getType()).getElementType();
}
inline bool hasCodes(mlir::Value value) { return scalarType(value).isInteger(8); }

// Codes of 8-bit floats, in blocks along rows.
inline bool hasFloatCodes(mlir::Value value) { return scalarType(value).isFloat8E4M3FN(); }

inline bool hasAnyCodes(mlir::Value value) { return hasCodes(value) || hasFloatCodes(value); }

// Codes have a scale, and nothing else has; but codes of a weight need none where rows have codes, too.
inline mlir::LogicalResult checkScaled(NodeOp node, llvm::StringRef what, mlir::Value value,
                                       mlir::Value scale) {
  if (hasAnyCodes(value) == static_cast<bool>(scale)) return mlir::success();
  return nodeError(node) << " has " << (scale ? "a" : "no") << " " << what << " scale, but its " << what
                         << (what == "row" ? "s are " : " is ") << shapeText(value.getType());
}

// Whether the scale has as many experts as the weight, and its other dimensions divide the weight's or, for
// codes of 8-bit floats, have a number for each square of codes.
inline bool isOfBlocks(mlir::Value weight, mlir::Value scale) {
  const llvm::SmallVector<int64_t> whole = numbersIn(mlir::cast<MoeTensorType>(weight.getType()));
  const auto type = mlir::cast<MoeTensorType>(scale.getType());
  const llvm::ArrayRef<int64_t> blocks = type.getShape();
  const DType codes = *findDType(scalarType(weight));
  if (!canScale(*findDType(type.getElementType()), codes) || blocks.size() != whole.size()) return false;
  const size_t first = whole.size() - 2;
  if (first == 1 && blocks[0] != whole[0]) return false;
  return numbersPerScale(codes, whole[first], blocks[first]) &&
         numbersPerScale(codes, whole[first + 1], blocks[first + 1]);
}

// Zeros belong to codes of 4 bits, and lie as their scales, from whose type theirs follows.
template <class Op>
mlir::LogicalResult checkZero(Op op) {
  const mlir::Value zero = op.getWeightZero(), scale = op.getWeightScale();
  if (!zero) return mlir::success();
  if (codesIn(scalarType(op.getWeight())) == 1)
    return nodeError(op) << " has a weight zero, but its weight is " << shapeText(op.getWeight().getType())
                         << ", expected codes of 4 bits in ui8";
  const bool inCodes = scale && (scalarType(scale).isF16() || scalarType(scale).isBF16());
  const auto shapeIn = [](mlir::Value value) {
    return mlir::cast<MoeTensorType>(value.getType()).getShape();
  };
  if (scale && shapeIn(zero) == shapeIn(scale) &&
      (inCodes ? scalarType(zero).isInteger(8) : scalarType(zero).isF32() && scalarType(scale).isF32()))
    return mlir::success();
  return nodeError(op) << ": weight zero is " << shapeText(zero.getType()) << ", expected "
                       << (inCodes ? "i8" : "f32") << ", of the shape of the scale";
}

// A factor belongs to scales of E4M3.
template <class Op>
mlir::LogicalResult checkFactor(Op op) {
  const mlir::Value factor = op.getWeightFactor(), scale = op.getWeightScale();
  if (!factor || (scale && hasFloatCodes(scale))) return mlir::success();
  mlir::InFlightDiagnostic error = nodeError(op) << " has a weight factor, but ";
  if (!scale) return error << "no weight scale";
  return error << "its weight scale is " << shapeText(scale.getType()) << ", expected f8E4M3FN";
}

// Codes of 8 bits are added up in one int32, codes of 4 bits in stretches.
template <class Op>
mlir::LogicalResult checkLength(Op op) {
  const auto weight = mlir::cast<MoeTensorType>(op.getWeight().getType());
  const int64_t sum = weight.getShape().take_back(2)[op.getTranspose() ? 1 : 0];
  if (codesIn(weight.getElementType()) != 1 || sum <= kMaxCodes) return mlir::success();
  return nodeError(op) << " adds " << sum << " products of codes, expected at most " << kMaxCodes;
}

// The scales of a product's factors. Exact sums of products of codes need one scale per column of the
// product, or with codes of 4 bits per group of it.
template <class Op>
mlir::LogicalResult checkScales(Op op) {
  const mlir::Value rows = op.getRows(), weight = op.getWeight(), scale = op.getWeightScale();
  const bool isExact = hasCodes(rows) && hasCodes(weight);
  if (failed(checkScaled(op, "row", rows, op.getRowScale())) ||
      (!(isExact && !scale) && failed(checkScaled(op, "weight", weight, scale))) || failed(checkZero(op)) ||
      failed(checkFactor(op)))
    return mlir::failure();
  if (hasCodes(rows) && !hasCodes(weight))
    return nodeError(op) << " has rows of codes, but its weight is " << shapeText(weight.getType());
  if (isExact && failed(checkLength(op))) return mlir::failure();
  if (!scale) return mlir::success();
  if (!isOfBlocks(weight, scale))
    return nodeError(op) << ": weight scale is " << shapeText(scale.getType()) << ", expected f32"
                         << (codesIn(scalarType(weight)) == 1 ? "" : ", f16, bf16, f8E8M0 or f8E4M3FN")
                         << " with dimensions "
                         << (hasFloatCodes(weight)
                                 ? "of a number for each square of " + std::to_string(kFp8Square) + " of"
                                 : "that divide those of")
                         << " the weight " << shapeText(weight.getType());
  if (!isExact) return mlir::success();
  const auto whole = numbersIn(mlir::cast<MoeTensorType>(weight.getType()));
  const llvm::ArrayRef<int64_t> ofWeight = llvm::ArrayRef<int64_t>(whole).take_back(2);
  const auto ofScale = mlir::cast<MoeTensorType>(scale.getType()).getShape().take_back(2);
  if (!isNumber(*findDType(scalarType(scale))))
    return nodeError(op) << ": weight scale is " << shapeText(scale.getType()) << ", expected f32"
                         << (codesIn(scalarType(weight)) == 1 ? "" : ", f16 or bf16")
                         << ", because its rows have codes";
  const size_t sum = op.getTranspose() ? 1 : 0;
  const bool inGroups = codesIn(scalarType(weight)) != 1;
  if (ofScale[1 - sum] == ofWeight[1 - sum] &&
      (inGroups ? isGroup(ofWeight[sum] / ofScale[sum], ofWeight[sum]) : ofScale[sum] == 1))
    return mlir::success();
  return nodeError(op) << ": weight scale is " << shapeText(scale.getType())
                       << ", expected one number per column "
                       << (inGroups ? "or group of 32, 64, 128 or a multiple of 256 of the column " : "")
                       << "of the product, because its rows have codes";
}

// Factors of bf16 are rounded, by an amax or in whole blocks along a sum; only a weight is rounded in
// squares.
inline mlir::LogicalResult checkRounding(NodeOp node, llvm::StringRef what, mlir::Value factor,
                                         std::optional<Rounding> rounding, mlir::Value amax,
                                         bool isWeight = false) {
  // before the pass scale-factors there are none
  if (amax && !(rounding && sluice::findInfo(*rounding).isScaled))
    return nodeError(node) << " has an amax of its " << what << ", but rounds " << (isWeight ? "it" : "them")
                           << " to " << text::word(rounding.value_or(Rounding::kNone));
  if (!rounding || *rounding == Rounding::kNone) return mlir::success();
  if (isWeight ? hasAnyCodes(factor) : hasCodes(factor))
    return nodeError(node) << " rounds its " << what << ", which is " << shapeText(factor.getType())
                           << ", expected bf16";
  if (sluice::findInfo(*rounding).isSquare && !isWeight)
    return nodeError(node) << " rounds its " << what << " in squares, expected blocks along the sum";
  return mlir::success();
}

template <class Op>
mlir::LogicalResult checkRoundings(Op op) {
  const mlir::Value rows = op.getRows();
  if (failed(checkRounding(op, "rows", rows, op.getRoundA(), op.getRowAmax())) ||
      failed(checkRounding(op, "weight", op.getWeight(), op.getRoundB(), op.getWeightAmax(), true)))
    return mlir::failure();
  if (hasAnyCodes(op.getWeight()) && op.getRoundA().value_or(Rounding::kNone) != Rounding::kNone)
    return nodeError(op) << " rounds its rows, but its weight is " << shapeText(op.getWeight().getType())
                         << ", expected bf16";
  if (hasFloatCodes(rows)) {
    if (!isEncodableInBlocks(op.getRoundA().value_or(Rounding::kNone)))
      return nodeError(op) << " has codes as rows, which it does not round to E4M3 in blocks";
  }
  const auto weight = numbersIn(mlir::cast<MoeTensorType>(op.getWeight().getType()));
  const size_t last = weight.size() - 1;
  const int64_t sum = weight[op.getTranspose() ? last : last - 1];
  const int64_t columns = weight[op.getTranspose() ? last - 1 : last];
  const auto hasBlocks = [](std::optional<Rounding> rounding) {
    return rounding && *rounding != Rounding::kNone && !sluice::findInfo(*rounding).isScaled;
  };
  if ((hasBlocks(op.getRoundA()) || hasBlocks(op.getRoundB())) && sum % kMxBlock != 0)
    return nodeError(op) << " rounds factors of sums of " << sum << " numbers, expected a multiple of "
                         << kMxBlock;
  if (op.getRoundB() && sluice::findInfo(*op.getRoundB()).isSquare && columns % kMxBlock != 0)
    return nodeError(op) << " rounds a weight of " << columns
                         << " columns in squares, expected a multiple of " << kMxBlock;
  return mlir::success();
}

template <class Op>
mlir::LogicalResult checkFactorForms(Op op) {
  return failed(checkScales(op)) ? mlir::failure() : checkRoundings(op);
}

// Codes of 8-bit floats are one factor, which is not the one that the row scale multiplies, and have scales
// if they are rounded in blocks.
inline mlir::LogicalResult checkCodes(GmmWeightGradOp op) {
  const auto isRounded = [](std::optional<Rounding> rounding) {
    return rounding.value_or(Rounding::kNone) != Rounding::kNone;
  };
  if (op.getScaleA() && !(op.getRowScale() && (isRounded(op.getRoundA()) || isRounded(op.getRoundB()))))
    return nodeError(op) << " has scale_a, but no row scale or no rounding";
  const bool ofA = scalarType(op.getA()).isFloat8E4M3FN(), ofB = scalarType(op.getB()).isFloat8E4M3FN();
  if (ofA && ofB) return nodeError(op) << " has two factors of codes, expected one";
  const Rounding rounding = (ofA ? op.getRoundA() : op.getRoundB()).value_or(Rounding::kNone);
  const bool byAmax = sluice::findInfo(rounding).isScaled;
  if (((ofA || ofB) && !byAmax) != static_cast<bool>(op.getScales()))
    return nodeError(op) << " has " << (op.getScales() ? "" : "no ")
                         << "scales of codes, but its factors are " << shapeText(op.getA().getType())
                         << " and " << shapeText(op.getB().getType())
                         << ((ofA || ofB) && byAmax ? ", rounded by an amax" : "");
  if (!ofA && !ofB) return mlir::success();
  if (!isEncodable(rounding))
    return nodeError(op) << " has codes of its " << (ofA ? "a" : "b")
                         << ", which it does not round to E4M3, or in squares";
  if (op.getRowScale() && ofA == op.getScaleA())
    return nodeError(op) << " has codes of its " << (ofA ? "a" : "b") << ", which the row scale multiplies";
  return mlir::success();
}

inline mlir::LogicalResult checkSumRoundings(GmmWeightGradOp op) {
  const mlir::Value a = op.getA(), b = op.getB();
  if (failed(checkRounding(op, "a", a, op.getRoundA(), op.getAAmax())) ||
      failed(checkRounding(op, "b", b, op.getRoundB(), op.getBAmax())))
    return mlir::failure();
  return checkCodes(op);
}

}  // namespace sluice::moe

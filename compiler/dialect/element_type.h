// Types of tensors, and their element types in MLIR and in graphs or programs.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "compiler/dialect/moe.h"
#include "mlir/IR/BuiltinTypes.h"
#include "runtime/base/dtype.h"

namespace sluice {

inline moe::MoeTensorType moeTensorType(mlir::Value value) {
  return llvm::cast<moe::MoeTensorType>(value.getType());
}

inline mlir::Type mlirElementType(mlir::MLIRContext* context, DType type) {
  switch (type) {
    case DType::kF32:
      return mlir::Float32Type::get(context);
    case DType::kBF16:
      return mlir::BFloat16Type::get(context);
    case DType::kF16:
      return mlir::Float16Type::get(context);
    case DType::kI32:
      return mlir::IntegerType::get(context, 32);
    case DType::kI64:
      return mlir::IntegerType::get(context, 64);
    case DType::kI8:
      return mlir::IntegerType::get(context, 8);
    case DType::kU8:
      return mlir::IntegerType::get(context, 8, mlir::IntegerType::Unsigned);
    case DType::kF8_E4M3:
      return mlir::Float8E4M3FNType::get(context);
    case DType::kF8_E8M0:
      return moe::F8E8M0Type::get(context);
  }
  return {};
}

inline std::optional<DType> findDType(mlir::Type type) {
  for (int value = 0; value <= static_cast<int>(DType::MAX); ++value)
    if (const auto known = static_cast<DType>(value); mlirElementType(type.getContext(), known) == type)
      return known;
  return std::nullopt;
}

// Tensors of a graph have these types. Messages name them in this order.
inline constexpr std::array kGraphTypes = {DType::kBF16, DType::kF16, DType::kF32,     DType::kI32,
                                           DType::kI8,   DType::kU8,  DType::kF8_E4M3, DType::kF8_E8M0};

inline bool isGraphType(std::optional<DType> type) {
  return type && std::find(kGraphTypes.begin(), kGraphTypes.end(), *type) != kGraphTypes.end();
}

}  // namespace sluice

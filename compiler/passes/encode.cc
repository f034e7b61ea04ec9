#include "compiler/passes/encode.h"

#include "compiler/dialect/element_type.h"
#include "runtime/base/rounding.h"

namespace sluice {

moe::EncodeOp createEncode(mlir::OpBuilder& builder, TakenNames& names, const std::string& name,
                           mlir::Value value, const EncodeForm& form) {
  const moe::MoeTensorType type = moeTensorType(value);
  const int64_t extent = type.getShape().front(), n = type.getShape().back();
  mlir::MLIRContext* const context = builder.getContext();
  const auto tensor = [&](llvm::ArrayRef<int64_t> shape, DType element) {
    return moe::MoeTensorType::get(context, shape, mlirElementType(context, element));
  };
  llvm::SmallVector<std::string> taken = {names.tensor(name + "_codes")};
  llvm::SmallVector<mlir::Type> scales;
  if (!findInfo(form.rounding).isScaled) {
    taken.push_back(names.tensor(name + "_scales"));
    scales.push_back(tensor({extent, n / kMxBlock}, DType::kBF16));
    if (form.experts) {
      taken.push_back(names.tensor(name + "_end_scales"));
      llvm::SmallVector<int64_t> ends = {n};
      if (!type.hasTokens()) ends.insert(ends.begin(), *form.experts);
      scales.push_back(tensor(ends, DType::kBF16));
    }
  }
  const llvm::SmallVector<llvm::StringRef> tensors(taken.begin(), taken.end());
  return builder.create<moe::EncodeOp>(value.getLoc(), tensor({extent, n}, DType::kF8_E4M3), scales, value,
                                       form.amax, form.scale, form.rounding,
                                       builder.getStringAttr(names.node(name + "_encode")),
                                       builder.getStrArrayAttr(tensors), moe::SplitAttr());
}

}  // namespace sluice

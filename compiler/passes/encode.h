// Makes moe.encode ops, for passes that give codes to rows or tokens.
#pragma once

#include <optional>
#include <string>

#include "compiler/passes/common.h"
#include "mlir/IR/Builders.h"
#include "runtime/program/program.h"

namespace sluice {

// How a value is encoded: by an amax if the rounding is scaled; else in blocks down its columns if `experts`
// is given (the dimension of experts of end scales, which end scales of tokens do not have); else in blocks
// along its rows.
struct EncodeForm {
  Rounding rounding = Rounding::kNone;
  mlir::Value amax = {};
  mlir::Value scale = {};  // the value itself has codes, and this scale
  std::optional<int64_t> experts = {};
};

// The codes NAME_codes of `value`, with their scales NAME_scales and NAME_end_scales if they have some, at
// the builder's place.
moe::EncodeOp createEncode(mlir::OpBuilder& builder, TakenNames& names, const std::string& name,
                           mlir::Value value, const EncodeForm& form);

}  // namespace sluice

// The words for activations in IR, for the attributes of the dialect.
#pragma once

#include "mlir/IR/OpImplementation.h"
#include "runtime/program/op_table.h"
#include "runtime/program/words.h"

namespace sluice {

inline mlir::FailureOr<ActivationKind> parseActivation(mlir::AsmParser& parser) {
  const mlir::SMLoc location = parser.getCurrentLocation();
  std::string word;
  if (parser.parseKeywordOrString(&word)) return mlir::failure();
  if (const auto kind = activationFromName(word)) return *kind;
  return parser.emitError(location) << "found activation '" << word << "', expected " << activationNames();
}

}  // namespace sluice

// The words of program.fbs in IR, for the attributes of the dialect.
#pragma once

#include "mlir/IR/OpImplementation.h"
#include "runtime/program/op_table.h"
#include "runtime/program/words.h"

namespace sluice {

template <class E>
mlir::FailureOr<E> parseEnumWord(mlir::AsmParser& parser) {
  const mlir::SMLoc location = parser.getCurrentLocation();
  std::string word;
  if (parser.parseKeywordOrString(&word)) return mlir::failure();
  if (const auto value = text::fromWord<E>(word)) return *value;
  return parser.emitError(location) << "found '" << word << "', expected " << text::wordList<E>();
}

}  // namespace sluice

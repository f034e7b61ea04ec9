// Reads graph files as IR of the `moe` dialect. The form is described in graphs/FORMAT.md.
//
// Free functions; the files are untrusted. The reader checks fields, names and sizes, and that tensors lead
// from producers to readers; all else is checked by the verifiers of the dialect. Every op has the place in
// the file that describes it. Errors are reports: "file:line:column: error: message" and notes, with the file
// as given.
#pragma once

#include <string>
#include <string_view>

#include "compiler/graph/symbols.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/base/expected.h"

namespace sluice {

inline constexpr size_t kMaxGraphBytes = 4 << 20;

// The module with the graph in the file at `path`, with the symbols named in `sets` set to other values than
// their defaults.
Expected<mlir::OwningOpRef<mlir::ModuleOp>> readGraph(const std::string& path, SymbolSets sets,
                                                      mlir::MLIRContext& context);

// Likewise from a text; `file` is for messages.
Expected<mlir::OwningOpRef<mlir::ModuleOp>> readGraphText(std::string_view text, std::string_view file,
                                                          SymbolSets sets, mlir::MLIRContext& context);

}  // namespace sluice

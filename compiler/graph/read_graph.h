// Reads graph files as IR of the `moe` dialect. graphs/FORMAT.md specifies the format.
//
// Free functions; the files are untrusted. The reader checks fields, names and sizes, and that tensors lead
// from producers to readers; the verifiers of the dialect check the rest. The location of every op is the
// place in the file that describes it. Errors are reports: "file:line:column: error: message" and notes, with
// the given file name.
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

// The module with the graph in the file at `path`. `sets` replaces the default values of symbols.
Expected<mlir::OwningOpRef<mlir::ModuleOp>> readGraph(const std::string& path, SymbolSets sets,
                                                      mlir::MLIRContext& context);

// Likewise for a text; `file` is used in messages.
Expected<mlir::OwningOpRef<mlir::ModuleOp>> readGraphText(std::string_view text, std::string_view file,
                                                          SymbolSets sets, mlir::MLIRContext& context);

}  // namespace sluice

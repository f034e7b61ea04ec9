// Diagnostics of a context as the text of an error report, and locations as text.
#pragma once

#include <string>

#include "mlir/IR/Diagnostics.h"
#include "runtime/base/expected.h"

namespace sluice {

// "file:line:column" of a location, or empty if it has none.
std::string formatLocation(mlir::Location location);

// Collects errors and their notes, one per line, during its lifetime. If several are nested, the innermost
// one collects.
class DiagnosticReport {
 public:
  // `file` is named if a diagnostic has no location.
  DiagnosticReport(mlir::MLIRContext& context, std::string file);

  Error error() const;

 private:
  void addLine(const char* severity, const mlir::Diagnostic& diagnostic);

  const std::string file_;
  std::string text_;
  mlir::ScopedDiagnosticHandler handler_;
};

}  // namespace sluice

#include "compiler/dialect/diagnostics.h"

#include <fmt/format.h>

#include "mlir/IR/BuiltinAttributes.h"
#include "runtime/base/one_line.h"

namespace sluice {

std::string formatLocation(mlir::Location location) {
  const auto file = location->findInstanceOf<mlir::FileLineColLoc>();
  if (!file) return {};
  return fmt::format("{}:{}:{}", file.getFilename().str(), file.getLine(), file.getColumn());
}

DiagnosticReport::DiagnosticReport(mlir::MLIRContext& context, std::string file)
    : file_(std::move(file)), handler_(&context, [this](mlir::Diagnostic& diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error) addLine("error", diagnostic);
        for (const mlir::Diagnostic& note : diagnostic.getNotes()) addLine("note", note);
      }) {}

Error DiagnosticReport::error() const {
  return Error{text_.empty() ? file_ + ": error: compilation failed" : text_.substr(0, text_.size() - 1)};
}

void DiagnosticReport::addLine(const char* severity, const mlir::Diagnostic& diagnostic) {
  const std::string source = formatLocation(diagnostic.getLocation());
  text_ +=
      oneLine(fmt::format("{}: {}: {}", source.empty() ? file_ : source, severity, diagnostic.str())) + "\n";
}

}  // namespace sluice

// sluice-opt: reads a moe.graph as MLIR, runs passes on it, prints it.
#include "compiler/dialect/moe.h"
#include "compiler/graph/mlir_text.h"
#include "compiler/passes/passes.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "runtime/base/pending_file.h"
#include "tools/command_line.h"

namespace {

int fail(const std::string& message, int status) {
  llvm::errs() << sluice::tools::printable(message) << "\n";
  return status;
}

// Standard output gets what exists even if part of the input is wrong; a file is complete or unchanged.
sluice::Status write(const std::string& name, const std::string& text, bool complete) {
  if (name != "-")
    return complete ? sluice::replaceFile(name, std::as_bytes(std::span(text))) : sluice::Status{};
  llvm::outs() << text;
  llvm::outs().flush();
  if (!llvm::outs().has_error()) return {};
  llvm::outs().clear_error();
  return sluice::Error{"sluice-opt: error: standard output cannot be written"};
}

// Like mlir::MlirOptMain with file names, except that the text is checked before MLIR parses it, and that a
// file is replaced as a whole.
int run(const std::string& inputName, const std::string& outputName, mlir::DialectRegistry& registry) {
  const auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  std::string wrong;
  std::unique_ptr<llvm::MemoryBuffer> input = mlir::openInputFile(inputName, &wrong);
  if (!input) return fail(wrong, EXIT_FAILURE);
  if (auto status = sluice::checkMlirText(input->getBuffer(), inputName, config.inputSplitMarker()); !status)
    return fail(status.error().message, EXIT_FAILURE);
  std::string text;
  llvm::raw_string_ostream stream(text);
  const bool done = succeeded(mlir::MlirOptMain(stream, std::move(input), registry, config));
  stream.flush();
  if (auto status = write(outputName, text, done); !status) return fail(status.error().message, EXIT_FAILURE);
  return done ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string empty = sluice::tools::findEmptyArgument(argc, argv); !empty.empty())
    return fail("sluice-opt: error: " + empty, 2);
  const llvm::InitLLVM init(argc, argv);
  sluice::removeNamedFilesOnSignals();
  mlir::DialectRegistry registry;
  registry.insert<sluice::moe::MoeDialect>();
  sluice::registerSluicePasses();
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream& out) {
    out << sluice::tools::versionText("sluice-opt", "LLVM " LLVM_VERSION_STRING) << "\n";
  });
  const auto [input, output] =
      mlir::registerAndParseCLIOptions(argc, argv, "sluice-opt: runs single passes\n", registry);
  const bool asksOnly = mlir::MlirOptMainConfig::createFromCLOptions().shouldShowDialects();
  if (asksOnly) return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, registry));
  return run(input, output, registry);
}

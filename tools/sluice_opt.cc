// sluice-opt: reads MLIR of our dialects, runs passes on it, prints it.
#include "compiler/dialect/moe.h"
#include "compiler/dialect/task.h"
#include "compiler/import/mlir_text.h"
#include "compiler/passes/passes.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "tools/command_line.h"
#include "tools/version.h"

namespace {

int fail(const std::string& message, int status) {
  llvm::errs() << sluice::tools::printable(message) << "\n";
  return status;
}

// As mlir::MlirOptMain with names of files, but that the text is checked before MLIR parses it.
int run(const std::string& inputName, const std::string& outputName, mlir::DialectRegistry& registry) {
  const auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  std::string wrong;
  std::unique_ptr<llvm::MemoryBuffer> input = mlir::openInputFile(inputName, &wrong);
  if (!input) return fail(wrong, EXIT_FAILURE);
  if (auto status = sluice::checkMlirText(input->getBuffer(), inputName, config.inputSplitMarker()); !status)
    return fail(status.error().message, EXIT_FAILURE);
  const std::unique_ptr<llvm::ToolOutputFile> output = mlir::openOutputFile(outputName, &wrong);
  if (!output) return fail(wrong, EXIT_FAILURE);
  if (failed(mlir::MlirOptMain(output->os(), std::move(input), registry, config))) return EXIT_FAILURE;
  output->keep();
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string empty = sluice::tools::findEmptyArgument(argc, argv); !empty.empty())
    return fail("sluice-opt: error: " + empty, 2);
  const llvm::InitLLVM init(argc, argv);
  mlir::DialectRegistry registry;
  registry.insert<sluice::moe::MoeDialect, sluice::task::TaskDialect>();
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

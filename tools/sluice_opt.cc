// sluice-opt: reads MLIR of our dialects, runs passes on it, prints it.
#include "compiler/dialect/moe.h"
#include "compiler/dialect/task.h"
#include "compiler/passes/passes.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "tools/command_line.h"
#include "tools/version.h"

int main(int argc, char** argv) {
  if (const std::string empty = sluice::tools::findEmptyArgument(argc, argv); !empty.empty()) {
    llvm::errs() << "sluice-opt: error: " << sluice::tools::printable(empty) << "\n";
    return 2;
  }
  mlir::DialectRegistry registry;
  registry.insert<sluice::moe::MoeDialect, sluice::task::TaskDialect>();
  sluice::registerSluicePasses();
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream& out) {
    out << sluice::tools::versionText("sluice-opt", "LLVM " LLVM_VERSION_STRING) << "\n";
  });
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "sluice-opt: runs single passes\n", registry));
}

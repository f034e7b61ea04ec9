// sluice-opt: reads MLIR of our dialects, runs passes on it, prints it.
#include "compiler/dialect/moe.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char** argv) {
  mlir::DialectRegistry registry;
  registry.insert<sluice::moe::MoeDialect>();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "sluice-opt: runs single passes\n", registry));
}

#include "compiler/api/pass_timer.h"

#include "mlir/Pass/Pass.h"

namespace sluice {

void PassTimer::runBeforePass(mlir::Pass* pass, mlir::Operation*) {
  if (!pass->getArgument().empty()) start_ = std::chrono::steady_clock::now();
}

void PassTimer::runAfterPass(mlir::Pass* pass, mlir::Operation*) {
  if (pass->getArgument().empty()) return;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
  ++runs_[pass->getArgument().str()];
  times_.push_back({pass->getArgument().str(), time.count()});
}

}  // namespace sluice

// How long passes take. Part of compile.
//
// A PassTimer belongs to one pass manager, which must not run passes in parallel; it adds to `times`, which
// outlives it. Managers of nested passes have no time of their own.
#pragma once

#include <chrono>
#include <vector>

#include "compiler/api/phase_time.h"
#include "mlir/Pass/PassInstrumentation.h"

namespace sluice {

class PassTimer : public mlir::PassInstrumentation {
 public:
  explicit PassTimer(std::vector<PhaseTime>& times) : times_(times) {}

  void runBeforePass(mlir::Pass* pass, mlir::Operation* op) override;
  void runAfterPass(mlir::Pass* pass, mlir::Operation* op) override;

 private:
  std::vector<PhaseTime>& times_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace sluice

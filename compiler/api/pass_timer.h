// Measures how long passes take, and counts how often each one ran. Part of compile.
//
// A PassTimer belongs to one pass manager, which must not run passes in parallel; it adds to `times` and to
// `runs`, which outlive it. Managers of nested passes have no time of their own.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "compiler/api/phase_time.h"
#include "mlir/Pass/PassInstrumentation.h"

namespace sluice {

class PassTimer : public mlir::PassInstrumentation {
 public:
  PassTimer(std::vector<PhaseTime>& times, std::map<std::string, int>& runs) : times_(times), runs_(runs) {}

  void runBeforePass(mlir::Pass* pass, mlir::Operation* op) override;
  void runAfterPass(mlir::Pass* pass, mlir::Operation* op) override;

 private:
  std::vector<PhaseTime>& times_;
  std::map<std::string, int>& runs_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace sluice

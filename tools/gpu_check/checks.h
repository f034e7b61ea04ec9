// Checks of a GPU with whole programs: the results of CPU threads, the same bits for any number of blocks and
// in any run, the report of a signal that is lost, and times. And the command gpu_check, on a machine that
// main() gives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/gpu_check/check_machine.h"
#include "tools/gpu_check/probes.h"

namespace sluice::tools {

struct CheckPlan {
  std::vector<std::string> programs;  // files
  std::vector<int> blocks;            // of a rank: each number gives the same bits
  int runs = 200;                     // with one hash
  int timedRuns = 10;
  std::string tokens;          // of each rank, as --tokens; empty: the program's
  double timeoutSeconds = 10;  // of a wait, where nothing is wrong
  double lostSeconds = 1;      // where a signal is lost
};

// Runs all checks; each result is reported as soon as it is known. Returns whether all passed.
bool runChecks(const CheckPlan& plan, const BackendsOf& backends, const ReportResult& report);

// By the value of --device.
using MachineOf = std::function<CheckMachine(const std::string& device)>;

// Returns the exit status.
int runGpuCheck(int argc, char** argv, const MachineOf& machineOf);

}  // namespace sluice::tools

// The overhead of a task beside its kernel: a program of tasks whose kernels do next to nothing, run by the
// parallel executor, in processor time.
//
// Free functions. They measure CLOCK_PROCESS_CPUTIME_ID, so that other programs on the machine do not count,
// and nothing else may run in this process meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// A chain of families in space tokens, one lane each, later ones first: family f scales the `columns` of a
// token and waits for family f - 1 at that token. Entry `chain`, which uses the routing of entry `route`, so
// that its bind does next to nothing; tensors expert_ids [T, 1], and [T, columns] x0, routed and x<families>.
// A slot is one token.
struct ChainShape {
  int cores = 1;
  int families = 8;
  int columns = 8;
  int tokens = 1 << 14;
  int window = 64;
};
TaskProgram chainProgram(const ChainShape& shape);

// A program that is run repeatedly, in turn with others.
struct OverheadCase {
  std::string name;
  ChainShape shape;
  int threads = 1;
  bool trace = false;  // its runs are recorded
};

struct TaskOverhead {
  std::string name;
  int64_t tasks = 0;         // of a run
  double bestSeconds = 0;    // of processor time, all threads together, for one task
  double medianSeconds = 0;  // likewise
};

// Runs the cases in turn, `rounds` times.
Expected<std::vector<TaskOverhead>> measureTaskOverhead(const std::vector<OverheadCase>& cases, int rounds);

}  // namespace sluice

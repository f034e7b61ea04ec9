// A layer run under a fault plan, and whether its end is one it may have: right bits, or an error that names
// what went wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/fault_plan.h"
#include "tests/testing/layer_run.h"

namespace sluice {

// Several steps of one program, with the bits of an undisturbed serial run.
struct FaultCase {
  std::string name;
  Program program;
  std::vector<LayerData> steps;             // inputs; outputs are for their shapes only
  std::vector<std::vector<uint64_t>> bits;  // [rank][run]: of all outputs after each run of an entry
  int64_t operations = 0;                   // of the busiest rank, with every row put
};

// What became of a rank.
struct RankEnd {
  std::vector<uint64_t> bits;  // after each run that ended well
  std::string error;           // of the first that did not
};

// For the way from one process to another: the error, a line end, the bits.
std::string toText(const RankEnd& end);
RankEnd rankEndOf(const std::string& text);

// All entries of all steps at one rank, in a context of its own.
RankEnd runRank(FaultCase& layer, int rank, Transport& transport, const ContextOptions& options);

std::vector<RankEnd> runUnder(FaultCase& layer, const FaultPlan& plan, const ContextOptions& options);

// How long a wait may be under the plan: short where something is sure to be lost.
double limitFor(const FaultPlan& plan);

// What is wrong with these ends, or "".
std::string judge(const FaultCase& layer, const FaultPlan& plan, const std::vector<RankEnd>& ends);

// The error of a rank of which no end is known.
inline constexpr const char* kGone = "gone";

// The same for ranks of several machines: those that fail at the same time may each keep their own message.
std::string judgeEach(const FaultCase& layer, const FaultPlan& plan, std::vector<RankEnd> ends);

// Small layers of 2 to 4 ranks: plain, fused, in groups, wide, with experts that the ranks do not divide;
// ragged, masked, with ranks that have nothing.
std::vector<FaultCase> makeFaultCases();

// One of four executors: serial, and parallel with 1 to 3 workers.
ContextOptions executorOf(uint64_t number, const FaultPlan& plan);

}  // namespace sluice

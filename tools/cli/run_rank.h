// One rank of a run: its tensors, its steps, and the figures of them.
//
// A Rank is a resource type, used by the one thread that runs it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/run_job.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

struct RankFigures {
  int64_t tokens = 0;
  std::vector<std::vector<RunStats>> stats;  // by entry run, then by repetition
  PackedWeights packed;
  HugePageUse pages;  // of the process, when this rank was done
};

struct Rank {
  TensorMap inputs;
  TensorMap outputs;
  RankFigures figures;
  Trace trace;                        // of the last repetition
  std::vector<EntryOverlap> overlap;  // of all ranks, where it is measured
};

// Reads the rank's inputs, or makes them. Errors: those of the file and of checkInputs(), with the path.
Expected<Rank> loadRank(const Job& job, int rank);

// All repetitions of all entries. Collective. Errors: what the context says, and memory that is not there.
Status runRank(const Job& job, Transport& transport, Rank& rank);

// Figures and traces as bytes, for ranks of other processes. Reading checks lengths only.
std::string encodeFigures(const RankFigures& figures);
Expected<RankFigures> decodeFigures(std::string_view bytes);
std::string encodeTrace(const Trace& trace);
Expected<Trace> decodeTrace(std::string_view bytes);

}  // namespace sluice::tools

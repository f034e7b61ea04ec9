// What `sluice run` was asked for, the job that comes of it, and what one rank does of the job.
//
// RunOptions, Job and RankFigures are values, the same at all ranks but for the figures. A Rank is a resource
// type, used by the one thread that runs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/context.h"
#include "tools/cli/run_tensors.h"
#include "tools/moe/inputs.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

struct RunOptions {
  std::string program, in, out, entries, executor = "parallel", pack = "task", trace, overlapJson;
  std::string transport;                    // empty: by the launcher of this process
  std::optional<uint64_t> seed;             // inputs are made, in place of `in`
  std::string tokens, routing = "uniform";  // of those; as `sluice make-inputs` has them
  int ranks = 0;                            // 0: those of the program
  int threads = 0;
  double timeout = 30;
  int repeat = 1;
  double packedMib = 0;
  bool overlap = false;
};

struct Job {
  Program program;
  std::vector<EntryId> entries;
  EntryTensors tensors;
  std::optional<InputsSpec> made;    // each rank makes its inputs, and reads none
  std::vector<std::string> in, out;  // by rank; without `out` nothing is written
  std::string trace;                 // empty: none
  ContextOptions options;
  Weights weights = Weights::kOrdinary;
  int repeat = 1;
  bool overlap = false;     // measure it after the usual runs
  std::string overlapJson;  // a file for its figures, or empty
};

// Errors: a program that cannot be loaded, another number of ranks than its own, unknown entries, file names
// that ranks would share, inputs to make that the program cannot have. Reads the program only.
Expected<Job> makeJob(const RunOptions& options);

struct RankFigures {
  int64_t tokens = 0;
  std::vector<RunStats> stats;  // by repetition, then by entry run
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

// All repetitions of all entries, then as many for the overlap where that is asked for. Collective. Errors:
// what the context says, and memory that is not there.
Status runRank(const Job& job, Transport& transport, Rank& rank);

// Figures and traces as bytes, for other ranks. Reading checks lengths only.
std::string encodeFigures(const RankFigures& figures);
Expected<RankFigures> decodeFigures(std::string_view bytes);
std::string encodeTrace(const Trace& trace);
Expected<Trace> decodeTrace(std::string_view bytes);

}  // namespace sluice::tools

// What `sluice run` does: its options, the job that they describe, whether the job fits into memory, what one
// rank does of it, all ranks together, and the texts that it prints.
//
// RunOptions, Job and RankFigures are values, the same at all ranks except for the figures. A Rank is a
// resource type, used only by the thread that runs it. All outputs of a run appear, or none; rank 0 prints
// the report of all.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/base/machine.h"
#include "runtime/comm/transport.h"
#include "tools/cli/run_tensors.h"
#include "tools/moe/inputs.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

struct RunOptions {
  std::string program, in, out, entries, executor = "parallel", device = "cpu", pack = "task", trace,
                                         overlapJson;
  std::string onHang;            // file of each rank; empty: the file that the environment names, or none
  std::string transport;         // empty: determined by the launcher of this process
  std::optional<uint64_t> seed;  // inputs are made, instead of read from `in`
  // with the words of `sluice make-inputs`; tokens also of inputs that are read
  std::string tokens, routing = "uniform";
  int ranks = 0;  // 0: as many as the program has
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
  std::optional<InputsSpec> made;    // each rank makes its inputs instead of reading them
  std::vector<int64_t> tokens;       // T of every rank, or empty if files show it
  std::vector<std::string> in, out;  // by rank; without `out` nothing is written
  std::string trace;                 // empty: no trace
  std::vector<std::string> onHang;   // by rank: for the trace of a step that fails; empty: not requested
  ContextOptions options;
  Weights weights = Weights::kOrdinary;
  int repeat = 1;
  bool overlap = false;     // measured after the usual runs
  std::string overlapJson;  // file for the figures of the overlap, or empty
};

// Errors: the program cannot be loaded; a number of ranks other than the program's; unknown entries; file
// names that ranks would share; numbers of tokens that the program does not take. Reads only the program.
Expected<Job> makeJob(const RunOptions& options);

struct RankFigures {
  int64_t tokens = 0;
  std::vector<RunStats> stats;  // by repetition, then by entry run
  PackedWeights packed;
  HugePageUse pages;  // of the process, when this rank had finished
};

struct Rank {
  TensorMap inputs;
  TensorMap outputs;
  RankFigures figures;
  Trace trace;                        // of the last repetition
  std::vector<EntryOverlap> overlap;  // of all ranks, if it is measured
};

// Reads the rank's inputs or makes them. Errors: from the file and checkInputs(), with the path.
Expected<Rank> loadRank(const Job& job, int rank);

// Runs all repetitions of all entries, then as many for the overlap if that is requested. Collective. Errors:
// from the context; out of memory.
Status runRank(const Job& job, Transport& transport, Rank& rank);

// Figures and traces as bytes, to send to other ranks. Decoding checks only lengths.
std::string encodeFigures(const RankFigures& figures);
Expected<RankFigures> decodeFigures(std::string_view bytes);
std::string encodeTrace(const Trace& trace);
Expected<Trace> decodeTrace(std::string_view bytes);

// Loads this rank's inputs, runs, and writes its outputs if all ranks can write theirs. Collective, even if
// this rank has no job: then all ranks get the reason. Returns the exit status; kExitFailure if another rank
// prints the error.
Expected<int> runAsRank(const Expected<Job>& job, double timeoutSeconds, Transport& transport);

// Runs all ranks as threads of this process. Error: the error of the rank that failed first.
Expected<int> runThreads(const Job& job);

// Tells whether the ranks fit into memory, before any memory is used. Lower bounds for all ranks together:
// the bytes of their tensors, and of the memory of their steps. If inputs are read from files, no tokens are
// counted.
struct RunMemory {
  double inputs = 0, outputs = 0, steps = 0;  // bytes
};
RunMemory estimateMemory(const Job& job);

// Error: more than is left, with the numbers.
Status checkMemory(const Job& job, const MemoryLeft& left = memoryLeft());

// Tables of all ranks. `areProcesses`: each rank is a process with memory of its own.
std::string reportRun(const Job& job, const std::vector<RankFigures>& ranks, bool areProcesses);

// The figures of --overlap as a table, with what its columns mean.
std::string overlapText(const std::vector<EntryOverlap>& overlap);

}  // namespace sluice::tools

// What `sluice run` was asked for, and the job that comes of it: program, entries, files and settings, the
// same at all ranks.
//
// Values; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "tools/cli/run_tensors.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {

struct RunOptions {
  std::string program, in, out, entries, executor = "parallel", pack = "task", trace, overlapJson;
  std::string transport;                    // empty: by who started this process
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
  bool overlap = false;     // measure it behind the usual runs
  std::string overlapJson;  // a file for its figures, or empty
};

// Errors: a program that cannot be loaded, another number of ranks than its own, unknown entries, file names
// that ranks would share, inputs to make that the program cannot have. Reads the program only.
Expected<Job> makeJob(const RunOptions& options);

// "forward, backward".
std::string entryNames(const Job& job);

}  // namespace sluice::tools

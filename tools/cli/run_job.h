// What `sluice run` was asked for, and the job that comes of it: program, entries, files and settings, the
// same at all ranks.
//
// Values; any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "tools/cli/run_tensors.h"

namespace sluice::tools {

struct RunOptions {
  std::string program, in, out, entries, executor = "parallel", pack = "task", trace, overlapJson;
  std::string transport;  // empty: by who started this process
  int ranks = 0;          // 0: those of the program
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
  std::vector<std::string> in, out;  // by rank
  std::string trace;                 // empty: none
  ContextOptions options;
  Weights weights = Weights::kOrdinary;
  int repeat = 1;
  bool overlap = false;     // measure it behind the usual runs
  std::string overlapJson;  // a file for its figures, or empty
};

// Errors: a program that cannot be loaded, another number of ranks than its own, unknown entries, file names
// that ranks would share. Reads the program only.
Expected<Job> makeJob(const RunOptions& options);

// "forward, backward".
std::string entryNames(const Job& job);

}  // namespace sluice::tools

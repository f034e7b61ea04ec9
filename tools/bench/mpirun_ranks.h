// A layer whose ranks are processes that mpirun starts: each number of ranks is a job of its own, which runs
// `sluice-mpi run --overlap` and leaves its figures in a file.
//
// Free functions; called while the process has one thread. A job ends with this process.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/measure_ranks.h"

namespace sluice::tools {

// Paths of the programs that a job needs.
struct MpiTools {
  std::string mpirun;
  std::string sluice;  // with MPI in it
};

// mpirun by the folders of `path` (those of PATH), sluice-mpi beside this program or there. Errors: one of
// them is missing, with what makes it.
Expected<MpiTools> findMpiTools(const std::string& path);

// The layers one after another, each `options.repeat` times and once before that does not count; otherwise as
// measureRanks(). What goes wrong in a job is on the standard error; the error says how the job ended.
Expected<std::vector<RanksSamples>> measureMpi(const MpiTools& tools, const std::vector<LayerCase>& layers,
                                               const BenchOptions& options);

}  // namespace sluice::tools

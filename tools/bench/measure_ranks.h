// Measures a layer whose ranks are threads, processes of this machine or processes that mpirun starts: the
// step, its communication alone and its computation alone, for one or several numbers of ranks that share the
// same work. Each number of ranks is a job of its own: `sluice run --overlap`, which leaves its figures in a
// file.
//
// Value types and free functions; called while the process has one thread. A job ends with this process.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/bench_layer.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

// One number of ranks.
struct RanksSamples {
  LayerCase layer;
  int threads = 1;  // of a rank
  std::vector<EntryOverlap> entries;
};

// The layer that `ranks` ranks have of the work of `first`: as many tokens and experts in all. Errors: they
// cannot be shared evenly.
Expected<LayerCase> sharedAmong(const LayerCase& first, int ranks);

// How a job is started.
struct RanksStarter {
  std::string transport;  // threads, shm or mpi
  std::string sluice;     // path of the program; with MPI in it for mpi
  std::string mpirun;     // path; empty for the others
};

// The programs of `transport`: sluice (for mpi, sluice-mpi) beside this program or in the folders of `path`
// (those of PATH), mpirun there. Errors: one of them is missing, and what makes it.
Expected<RanksStarter> findStarter(const std::string& transport, const std::string& path);

// Each layer `options.repeat` times, and once per job that does not count. The jobs of the layers take turns,
// so that a machine that slows down slows all of them. `options.threads` is divided by the ranks; each has
// one at least. What goes wrong in a job is on the standard error; the error says how the job ended.
Expected<std::vector<RanksSamples>> measureRanks(const RanksStarter& starter,
                                                 const std::vector<LayerCase>& layers,
                                                 const BenchOptions& options);

}  // namespace sluice::tools

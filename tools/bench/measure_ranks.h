// Measures a layer whose ranks are threads, processes of this machine, or processes that mpirun starts: the
// step, its communication alone and its computation alone, for one or several numbers of ranks that share the
// same work. Each number of ranks is a separate job: `sluice run --overlap`, which writes its figures to a
// file.
//
// Value types and free functions; called while the process has one thread. A job ends with this process.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/bench_layer.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

// The samples of one number of ranks.
struct RanksSamples {
  LayerCase layer;
  int threads = 1;  // per rank
  std::vector<EntryOverlap> entries;
};

// The layer of each of `ranks` ranks when they share the work of `first`, whose experts are routed: the same
// total of tokens and experts. Errors: they cannot be shared evenly.
Expected<LayerCase> sharedAmong(const LayerCase& first, int ranks);

// How a job is started.
struct RanksStarter {
  std::string transport;  // threads, shm or mpi
  std::string sluice;     // path of the program; for mpi, of the one with MPI
  std::string mpirun;     // path; empty for other transports
};

// Finds the programs of `transport`: sluice (for mpi, sluice-mpi) next to this program or in the folders of
// `path` (the folders of PATH), and mpirun in `path`. Errors: a program is missing; the message states what
// provides it.
Expected<RanksStarter> findStarter(const std::string& transport, const std::string& path);

// Measures each layer `options.repeat` times, plus one run per job that is not counted. The jobs of the
// layers take turns, so that a machine that slows down slows all of them. `options.threads` is divided among
// the ranks; each has at least one. `options.between` is called before each job. Errors of a job appear on
// standard error; the returned error states how the job ended.
Expected<std::vector<RanksSamples>> measureRanks(const RanksStarter& starter,
                                                 const std::vector<LayerCase>& layers,
                                                 const BenchOptions& options);

}  // namespace sluice::tools

// How much of a step's communication overlaps with its computation: each entry runs with all of its work,
// with communication alone and with computation alone, in turn, and the three times are compared.
//
// EntrySample and EntryOverlap are value types. One thread of each rank uses an OverlapProbe; the transport
// must outlive it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"

namespace sluice::tools {

// One entry at all ranks in one repetition. By WorkKind: seconds of the slowest rank, from a common start;
// seconds of processor time of all ranks together; context switches of their threads, voluntary or not. The
// figures of messages are from the step with all its work. Copied as bytes.
struct EntrySample {
  std::array<double, 3> wall{};
  std::array<double, 3> cpu{};
  std::array<int64_t, 3> switches{};
  int64_t rows = 0;
  Traffic traffic;  // to other ranks
  CommStats stats;  // counted by the transport, including the exchange of routing counts
};

struct EntryOverlap {
  std::string entry;
  std::vector<EntrySample> samples;  // by repetition
};

// Medians, in seconds or per step; 0 if nothing was measured.
struct OverlapFigures {
  double all = 0, communication = 0, compute = 0;
  double efficiency = 0;  // max(communication, compute) / all: 1 if the shorter one is hidden
  double cpu = 0;         // of all ranks
  double switches = 0;
  double puts = 0, signals = 0, flushes = 0, messages = 0;
};
// `cpuUnits` > 0: times are processor time divided by this number of units, instead of wall time.
OverlapFigures computeFigures(const EntryOverlap& overlap, int cpuUnits = 0);

class OverlapProbe {
 public:
  // Collective.
  static Expected<OverlapProbe> create(Transport& transport, double timeoutSeconds);

  // Runs one repetition of the entries, in order, with each kind of work; collective. Returns the same at all
  // ranks, by entry. Afterwards the outputs are not the layer's. Errors: like Context::run().
  Expected<std::vector<EntrySample>> repeat(Context& context, const std::vector<std::string>& entries);

 private:
  struct Sample;
  Status measure(Context& context, const std::string& entry, WorkKind work, Sample& sample);
  Status meet(const Sample& sample);
  void collect(WorkKind work, EntrySample& all) const;

  Transport* transport_ = nullptr;
  double timeoutSeconds_ = 30;
  AllGather samples_;
};

}  // namespace sluice::tools

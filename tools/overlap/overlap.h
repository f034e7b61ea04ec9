// How far the communication of a step overlaps with its computation: each entry runs with all of its work,
// with communication alone and with computation alone, in turn, and the three times are compared.
//
// EntrySample and EntryOverlap are value types. OverlapProbe is used by one thread of each rank; the
// transport outlives it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"

namespace sluice::tools {

// One entry at all ranks in one repetition. By WorkKind: seconds of the slowest rank, from a common start;
// seconds of processor time of all ranks together; switches of their threads, wanted or not. What is said of
// messages is of the step with all its work. Lies in a block of bytes as it is.
struct EntrySample {
  std::array<double, 3> wall{};
  std::array<double, 3> cpu{};
  std::array<int64_t, 3> switches{};
  int64_t rows = 0;
  Traffic traffic;  // to other ranks
  CommStats stats;  // what the transport counted, with the exchange of routing counts
};

struct EntryOverlap {
  std::string entry;
  std::vector<EntrySample> samples;  // by repetition
};

// Medians, in seconds or a step; 0 where nothing was measured.
struct OverlapFigures {
  double all = 0, communication = 0, compute = 0;
  double efficiency = 0;  // max(communication, compute) / all: 1 where the shorter one is hidden
  double cpu = 0;         // of all ranks
  double switches = 0;
  double puts = 0, signals = 0, flushes = 0, messages = 0;
};
// `cpuUnits` > 0: times are processor time divided by so many units, instead of wall time.
OverlapFigures figuresOf(const EntryOverlap& overlap, int cpuUnits = 0);

class OverlapProbe {
 public:
  // Collective.
  static Expected<OverlapProbe> create(Transport& transport, double timeoutSeconds);

  // One repetition of the entries, in order, with each kind of work; collective. Returns the same at all
  // ranks, by entry. What the entries leave in outputs is not the layer's. Errors: as Context::run().
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

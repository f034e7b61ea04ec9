// The limits of this machine, measured in the same run as Sluice: the register peak of the multiplying unit,
// and the bandwidth of memory.
//
// Resource type; one thread uses it. It holds memory far larger than the caches.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/bench/probes.h"
#include "runtime/abi/kernels.h"
#include "runtime/workers/workers.h"
#include "tools/bench/clock.h"

namespace sluice::tools {

// One repetition of every probe, on one thread or on all.
struct ProbeRates {
  double flops = 0;   // per second
  double read = 0;    // bytes per second
  double stream = 0;  // bytes per second written past the caches
};

class MachineProbes {
 public:
  // The peak is measured with products of bf16, or of codes. Error: the system cannot start its threads.
  static Expected<MachineProbes> create(ops::Isa isa, int threads, ClockKind clock, bool ofCodes = false);

  // Each takes about 20 ms.
  ProbeRates one() { return probe(*one_); }
  ProbeRates all() { return probe(*all_); }

 private:
  MachineProbes() = default;
  ProbeRates probe(Workers& workers);

  ops::Isa isa_{};
  bool ofCodes_ = false;
  std::unique_ptr<Workers> one_, all_;  // one core each
  ClockKind clock_{};
  std::vector<ops::CacheLine> memory_;
};

// The median of each rate. At least one repetition.
ProbeRates medianRates(const std::vector<ProbeRates>& rates);

}  // namespace sluice::tools

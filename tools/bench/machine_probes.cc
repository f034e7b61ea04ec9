#include "tools/bench/machine_probes.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <span>
#include <utility>

#include "ops/bench/peak.h"
#include "runtime/base/clock.h"
#include "runtime/workers/cores.h"

namespace sluice::tools {
namespace {

constexpr size_t kProbeBytes = size_t{256} << 20;

std::atomic<uint64_t> sink;  // uses what was read, so that reads are not optimised away

int64_t chooseLoops(ops::Isa isa) { return isa == ops::Isa::kAmx ? 1 << 18 : 1 << 21; }

// The work per second of all workers together, from the first start to the last end; `work(worker)` returns
// how much that worker did. Workers have one core each from the start, because new threads may share one for
// a while.
double probeRate(Workers& workers, ClockKind clock, const std::function<double(int)>& work) {
  struct Part {
    double begin = 0, end = 0, cpu = 0, done = 0;
  };
  const int threads = workers.count();
  std::vector<Part> parts(static_cast<size_t>(threads));
  std::barrier<> ready(threads);
  auto run = [&](int worker) {
    Part& part = parts[static_cast<size_t>(worker)];
    ready.arrive_and_wait();
    const double cpu = secondsNow(CLOCK_THREAD_CPUTIME_ID);
    part.begin = secondsNow();
    part.done = work(worker);
    part.end = secondsNow();
    part.cpu = secondsNow(CLOCK_THREAD_CPUTIME_ID) - cpu;
  };
  workers.run([](void* context, int worker) { (*static_cast<decltype(run)*>(context))(worker); }, &run);
  Part all = parts[0];
  for (const Part& part : std::span(parts).subspan(1))
    all = {std::min(all.begin, part.begin), std::max(all.end, part.end), all.cpu + part.cpu,
           all.done + part.done};
  const Duration duration{all.end - all.begin, all.cpu};
  return all.done / duration.seconds(clock, threads);
}

}  // namespace

Expected<MachineProbes> MachineProbes::create(ops::Isa isa, int threads, ClockKind clock, bool ofCodes) {
  auto one = Workers::start(1, usableCores().units);
  auto all = one ? Workers::start(threads, usableCores().units) : one.error();
  if (!all) return all.error();
  MachineProbes probes;
  probes.isa_ = isa;
  probes.ofCodes_ = ofCodes;
  probes.one_ = std::move(*one);
  probes.all_ = std::move(*all);
  probes.clock_ = clock;
  probes.memory_ = ops::probedMemory(kProbeBytes);
  return probes;
}

ProbeRates MachineProbes::probe(Workers& workers) {
  const int threads = workers.count();
  const size_t each = memory_.size() / static_cast<size_t>(threads);
  const auto part = [&](int thread) {
    return std::span(memory_).subspan(static_cast<size_t>(thread) * each, each);
  };
  const double bytes = static_cast<double>(each * sizeof(ops::CacheLine));
  ProbeRates rates;
  rates.flops = probeRate(workers, clock_, [&](int) {
    return (ofCodes_ ? ops::runCodesPeak : ops::runPeak)(isa_, chooseLoops(isa_));
  });
  rates.read = probeRate(workers, clock_, [&](int thread) {
    sink += ops::readMemory(part(thread));
    return bytes;
  });
  rates.stream = probeRate(workers, clock_, [&](int thread) {
    ops::streamMemory(part(thread), 1);
    return bytes;
  });
  return rates;
}

ProbeRates medianRates(const std::vector<ProbeRates>& rates) {
  ProbeRates medians;
  for (double ProbeRates::* rate : {&ProbeRates::flops, &ProbeRates::read, &ProbeRates::stream}) {
    std::vector<double> values;
    for (const ProbeRates& each : rates) values.push_back(each.*rate);
    medians.*rate = computeMedian(std::move(values));
  }
  return medians;
}

}  // namespace sluice::tools

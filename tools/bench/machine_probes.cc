#include "tools/bench/machine_probes.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <fstream>
#include <functional>
#include <span>
#include <utility>

#include "ops/bench/peak.h"
#include "ops/bench/probes.h"
#include "runtime/workers/cores.h"

namespace sluice::tools {
namespace {

constexpr size_t kProbeBytes = size_t{256} << 20;
constexpr size_t kLine = 64;

std::atomic<uint64_t> sink;  // uses what was read, so that reads are not optimised away

// Four lanes and no fused multiply-add: instructions that a compiler may use on every machine.
double runPortablePeak(int64_t loops) {
  using Lanes [[gnu::vector_size(16)]] = float;
  const Lanes half = {0.5f, 0.5f, 0.5f, 0.5f};
  Lanes a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{}, k{}, l{}, m{}, n{};  // an array would be in memory
  const auto step = [&](Lanes& sum) __attribute__((always_inline)) {
    sum = sum * half + half;
    asm volatile("" : "+x"(sum));  // prevents merging with another loop
  };
  for (int64_t loop = 0; loop < loops; ++loop) {
    step(a), step(b), step(c), step(d), step(e), step(f);
    step(g), step(h), step(i), step(j), step(k), step(l), step(m), step(n);
  }
  return static_cast<double>(loops) * 14 * 4 * 2;
}

double (*peakLoop(ops::Isa isa))(int64_t) {
  switch (isa) {
    case ops::Isa::kPortable:
      return runPortablePeak;
    case ops::Isa::kAvx2:
      return ops::runAvx2FmaPeak;
    case ops::Isa::kAvx512Bf16:
      return ops::runAvx512DotPeak;
    case ops::Isa::kAmx:
      return ops::runAmxDotPeak;
  }
  return runPortablePeak;
}

int64_t loopsOf(ops::Isa isa) { return isa == ops::Isa::kAmx ? 1 << 18 : 1 << 21; }

// The work per second of all workers together, from the first start to the last end; `work(worker)` returns
// how much that worker did. Workers have one core each from the start, because new threads may share one for
// a while.
double rateOf(Workers& workers, ClockKind clock, const std::function<double(int)>& work) {
  struct Part {
    double begin = 0, end = 0, cpu = 0, done = 0;
  };
  const int threads = workers.count();
  std::vector<Part> parts(static_cast<size_t>(threads));
  std::barrier<> ready(threads);
  auto run = [&](int worker) {
    Part& part = parts[static_cast<size_t>(worker)];
    ready.arrive_and_wait();
    const double cpu = cpuNow(CLOCK_THREAD_CPUTIME_ID);
    part.begin = wallNow();
    part.done = work(worker);
    part.end = wallNow();
    part.cpu = cpuNow(CLOCK_THREAD_CPUTIME_ID) - cpu;
  };
  workers.run([](void* context, int worker) { (*static_cast<decltype(run)*>(context))(worker); }, &run);
  Part all = parts[0];
  for (const Part& part : std::span(parts).subspan(1))
    all = {std::min(all.begin, part.begin), std::max(all.end, part.end), all.cpu + part.cpu,
           all.done + part.done};
  const Duration duration{all.end - all.begin, all.cpu};
  return all.done / duration.seconds(clock, threads);
}

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Expected<MachineProbes> MachineProbes::create(ops::Isa isa, int threads, ClockKind clock) {
  auto one = Workers::start(1, usableCores().units);
  auto all = one ? Workers::start(threads, usableCores().units) : one.error();
  if (!all) return all.error();
  MachineProbes probes;
  probes.isa_ = isa;
  probes.one_ = std::move(*one);
  probes.all_ = std::move(*all);
  probes.clock_ = clock;
  probes.memory_.assign(kProbeBytes + kLine, std::byte{1});
  return probes;
}

ProbeRates MachineProbes::probe(Workers& workers) {
  const int threads = workers.count();
  const size_t shift = (kLine - reinterpret_cast<uintptr_t>(memory_.data()) % kLine) % kLine;
  const size_t each = kProbeBytes / static_cast<size_t>(threads) / kLine * kLine;
  const auto part = [&](int thread) {
    return std::span(memory_).subspan(shift + static_cast<size_t>(thread) * each, each);
  };
  ProbeRates rates;
  rates.flops = rateOf(workers, clock_, [&](int) { return peakLoop(isa_)(loopsOf(isa_)); });
  rates.read = rateOf(workers, clock_, [&](int thread) {
    sink += ops::readMemory(part(thread));
    return static_cast<double>(each);
  });
  rates.stream = rateOf(workers, clock_, [&](int thread) {
    ops::streamMemory(part(thread), 1);
    return static_cast<double>(each);
  });
  return rates;
}

ProbeRates medianRates(const std::vector<ProbeRates>& rates) {
  std::vector<double> flops, read, stream;
  for (const ProbeRates& one : rates) {
    flops.push_back(one.flops);
    read.push_back(one.read);
    stream.push_back(one.stream);
  }
  return {middle(std::move(flops)), middle(std::move(read)), middle(std::move(stream))};
}

std::string cpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace sluice::tools

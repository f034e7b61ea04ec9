#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <vector>

#include "ops/bench/probes.h"
#include "runtime/base/threads.h"
#include "tools/calibrate/chain.h"
#include "tools/calibrate/measure.h"

namespace sluice::tools {

namespace {

using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, void (*)(hwloc_topology_t)>;

Topology loadTopology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  Topology owned(topology, hwloc_topology_destroy);
  if (hwloc_topology_load(topology) != 0) owned.reset();
  return owned;
}

std::atomic<uint64_t> sink;  // uses what was read, so that reads are not optimised away

// Bytes per second of `threads` threads together, each with its own footprint: of the best pass, from the
// first start to the last end.
Expected<double> bandwidth(int threads, size_t bytesOfEach, int passes, bool write) {
  struct Span {
    double begin = 0;
    double end = 0;
  };
  std::vector<std::vector<Span>> spans(static_cast<size_t>(threads),
                                       std::vector<Span>(static_cast<size_t>(passes)));
  std::barrier<> ready(threads);
  const Status started = runTogether(threads, "measuring memory", [&](int t) {
    std::vector<ops::CacheLine> lines = ops::probedMemory(bytesOfEach);
    for (size_t pass = 0; pass < static_cast<size_t>(passes); ++pass) {
      ready.arrive_and_wait();
      Span& span = spans[static_cast<size_t>(t)][pass];
      span.begin = secondsNow();
      if (write)
        ops::streamMemory(lines, pass + 1);  // some machines write zeros several times as fast
      else
        sink += ops::readMemory(lines);
      span.end = secondsNow();
    }
  });
  if (!started) return started.error();
  double best = 1e9;
  for (size_t pass = 0; pass < static_cast<size_t>(passes); ++pass) {
    Span all = spans[0][pass];
    for (const std::vector<Span>& mine : spans)
      all = {std::min(all.begin, mine[pass].begin), std::max(all.end, mine[pass].end)};
    best = std::min(best, all.end - all.begin);
  }
  return static_cast<double>(bytesOfEach) * threads / best;
}

// Measures `count` runs, each with another index, `passes` times. Returns the lower quartile, because other
// work on the machine disturbs the values above it.
template <class Work>
double quartileSeconds(size_t count, int passes, const Work& work) {
  std::vector<double> seconds;
  for (int pass = 0; pass < passes; ++pass)
    for (size_t index = 0; index < count; ++index) {
      const double begin = secondsNow();
      work(index);
      seconds.push_back(secondsNow() - begin);
    }
  const auto quartile = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 4);
  std::nth_element(seconds.begin(), quartile, seconds.end());
  return *quartile;
}

// Compares products whose weights are not in a cache with products whose weights are.
class ColdProducts {
 public:
  ColdProducts(const ops::KernelSet& kernels, const Effort& effort)
      : kernels_(kernels),
        effort_(effort),
        weights_(ops::probedMemory(std::max(effort.bytes, 2 * kRow * kSum))),
        rows_(size_t{kRows} * kSum, toBFloat16(0.5f)),
        out_(size_t{kRows} * kColumns),
        scratch_(kernels.gmmScratchBytes(kColumns, kSum) / sizeof(ops::CacheLine) + 1) {
    ops::streamMemory(weights_, toBFloat16(0.01f).bits * uint64_t{0x0001000100010001});
  }

  // The seconds that a product with a new weight of `columns` columns takes longer than one with a known
  // weight; `warm` gets the time of the latter. The weight is separate, or a tile of a matrix with rows of
  // kRow columns.
  double lost(int32_t columns, bool isTile, double& warm) {
    const size_t ld = isTile ? kRow : static_cast<size_t>(columns),
                 tiles = kRow / static_cast<size_t>(columns);
    const size_t count = weights_.size() * sizeof(ops::CacheLine) / (2 * kRow * kSum) * tiles;
    const auto* const weights = reinterpret_cast<const BFloat16*>(weights_.data());
    const auto product = [&](size_t index) {
      const size_t matrix = index / tiles * kRow * kSum, tile = index % tiles;
      const size_t offset =
          isTile ? tile * static_cast<size_t>(columns) : tile * static_cast<size_t>(columns) * kSum;
      kernels_.gmm({.a = {rows_.data(), kSum},
                    .b = {weights + matrix + offset, static_cast<int64_t>(ld)},
                    .c = {out_.data(), columns},
                    .rows = kRows,
                    .n = columns,
                    .k = kSum,
                    .transposeB = false,
                    .scratch = scratch_.data()});
    };
    warm = bestSeconds(effort_.run * 2, [&] { product(0); });
    return std::max(0.0, quartileSeconds(count, effort_.passes, product) - warm);
  }

  static constexpr int32_t kRows = 64, kColumns = 256, kSum = 1024;
  static constexpr size_t kRow = 2048;

 private:
  const ops::KernelSet& kernels_;
  const Effort& effort_;
  std::vector<ops::CacheLine> weights_;
  const std::vector<BFloat16> rows_;
  std::vector<BFloat16> out_;
  std::vector<ops::CacheLine> scratch_;
};

// The part of the reading time that does not show was hidden; the extra time of a tile is due to its short
// runs.
void measureProducts(const ops::KernelSet& kernels, const Effort& effort, MemoryRates& rates) {
  ColdProducts products(kernels, effort);
  const auto reading = [&](int32_t columns) { return 2.0 * columns * ColdProducts::kSum / rates.coreRead; };
  double warm = 0;
  const double whole = products.lost(ColdProducts::kColumns, false, warm);
  rates.overlap = std::clamp((reading(ColdProducts::kColumns) - whole) / warm, 0.0, 1.0);
  constexpr int32_t kNarrow = 64;
  const double narrow = products.lost(kNarrow, true, warm), same = products.lost(kNarrow, false, warm);
  rates.halfRun = std::clamp(2 * kNarrow * (narrow - same) / reading(kNarrow), 0.0, 4096.0);
}

// Compares weight gradients of few rows that are written past the caches with one that stays in them: the
// part of the writing time that does not show was hidden.
void measureGrads(const ops::KernelSet& kernels, const Effort& effort, MemoryRates& rates) {
  constexpr int32_t kRows = 32, kSize = 512;
  constexpr size_t kFloats = size_t{kSize} * kSize;
  const std::vector<BFloat16> factor(size_t{kRows} * kSize, toBFloat16(0.5f));
  std::vector<ops::CacheLine> past = ops::probedMemory(effort.bytes);
  std::vector<float> kept(kSize *
                          (kSize + 1));  // rows that are no whole lines are not written past the caches
  std::vector<ops::CacheLine> scratch(kernels.weightGradScratchBytes(kSize, kSize) / sizeof(ops::CacheLine) +
                                      1);
  const auto grad = [&](float* c, int64_t ld) {
    kernels.gmmWeightGrad({.a = {factor.data(), kSize},
                           .b = {factor.data(), kSize},
                           .scale = nullptr,
                           .c = {c, ld},
                           .rows = kRows,
                           .m = kSize,
                           .n = kSize,
                           .scratch = scratch.data()});
  };
  const double warm = bestSeconds(effort.run * 2, [&] { grad(kept.data(), kSize + 1); });
  const double cold = quartileSeconds(
      effort.bytes / (kFloats * sizeof(float)), effort.passes,
      [&](size_t index) { grad(reinterpret_cast<float*>(past.data()) + index * kFloats, kSize); });
  const double writing = kFloats * sizeof(float) / rates.coreWrite;
  rates.writeOverlap = std::clamp((writing - (cold - warm)) / warm, 0.0, 1.0);
}

double cacheBytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = topology == nullptr ? nullptr : hwloc_get_obj_by_type(topology, type, 0);
  return cache == nullptr ? 0 : static_cast<double>(cache->attr->cache.size);
}

}  // namespace

Expected<MemoryRates> measureMemory(const ops::KernelSet& kernels, int cores, const Effort& effort) {
  MemoryRates rates;
  const size_t each = effort.bytes / static_cast<size_t>(cores);
  // a footprint that fits the last cache would not measure memory
  const size_t shared = std::max<size_t>(each, size_t{64} << 20);
  for (const bool write : {false, true}) {
    const auto one = bandwidth(1, effort.bytes, 2 * effort.passes, write);
    const auto all = one ? bandwidth(cores, shared, 2 * effort.passes, write) : one;
    if (!all) return all.error();
    (write ? rates.coreWrite : rates.coreRead) = *one;
    (write ? rates.sharedWrite : rates.sharedRead) = std::max(*one, *all);
  }
  measureProducts(kernels, effort, rates);
  measureGrads(kernels, effort, rates);
  return rates;
}

Expected<CacheSizes> measureCaches(const Effort& effort) {
  const Topology topology = loadTopology();
  CacheSizes caches;
  caches.core = cacheBytes(topology.get(), HWLOC_OBJ_L2CACHE);
  if (caches.core <= 0) caches.core = 1 << 20;
  caches.shared = cacheBytes(topology.get(), HWLOC_OBJ_L3CACHE);
  const double behind = caches.shared > 0 ? std::max(2 * caches.core, caches.shared / 4) : 8 * caches.core;
  const auto spill = bandwidth(1, static_cast<size_t>(behind), 20 * effort.passes, false);
  if (!spill) return spill.error();
  caches.coreSpill = *spill;
  return caches;
}

Expected<LinkRates> measureLink(const ops::KernelSet& kernels, int cores, const Effort& effort) {
  LinkRates link;
  constexpr int64_t kRowBytes = 4096;
  const auto rows = static_cast<int32_t>(effort.bytes / 2 / kRowBytes);
  const std::vector<std::byte> from(static_cast<size_t>(rows) * kRowBytes);
  std::vector<std::byte> to(from.size());
  std::vector<int32_t> index(static_cast<size_t>(rows));
  for (int32_t i = 0; i < rows; ++i)
    index[static_cast<size_t>(i)] = static_cast<int32_t>(int64_t{i} * 7919 % rows);
  link.bandwidth = static_cast<double>(from.size()) / bestSeconds(effort.run, [&] {
                     kernels.gatherRows({.src = from.data(),
                                         .srcStride = kRowBytes,
                                         .index = index.data(),
                                         .divisor = 1,
                                         .dst = to.data(),
                                         .dstStride = kRowBytes,
                                         .bytes = kRowBytes,
                                         .rows = rows});
                   });
  if (cores < 2) return link;
  // a counter that two threads increase in turn
  constexpr int kTrips = 1000;
  std::atomic<int> turn{0};
  auto other = startThread("memory", [&] {
    for (int trip = 0; trip < 20 * kTrips; ++trip) {
      while (turn.load(std::memory_order_acquire) != 2 * trip + 1) std::this_thread::yield();
      turn.store(2 * trip + 2, std::memory_order_release);
    }
  });
  if (!other) return Error{fmt::format("no thread to measure the link with: {}", other.error().message)};
  double best = 1e9;
  for (int batch = 0, trip = 0; batch < 20; ++batch) {
    const double begin = secondsNow();
    for (int i = 0; i < kTrips; ++i, ++trip) {
      turn.store(2 * trip + 1, std::memory_order_release);
      while (turn.load(std::memory_order_acquire) != 2 * trip + 2) std::this_thread::yield();
    }
    best = std::min(best, secondsNow() - begin);
  }
  other->join();
  link.latency = std::min(best / (2.0 * kTrips), 1.0);
  return link;
}

Expected<double> measureTask(int cores, const Effort& effort) {
  ChainShape shape;
  shape.cores = std::min(cores, 2);
  const auto chain = Chain::create(shape, shape.cores);
  if (!chain) return chain.error();
  double best = 1;
  for (int pass = 0; pass < 4 * effort.passes + 2; ++pass) {
    if (Status ran = (*chain)->run(); !ran) return ran.error();
    const RunStats& stats = (*chain)->context().lastRun();
    best = std::min(best, (stats.runSeconds - stats.bindSeconds) / static_cast<double>(stats.tasks));
  }
  return best * shape.cores;
}

}  // namespace sluice::tools

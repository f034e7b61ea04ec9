// Plain accesses, counters, and the order between the generic and the async proxy.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "ops/gpu/model/calls.h"
#include "ops/gpu/model/machine.h"

namespace sluice::gpu::model {
namespace {

bool isWithin(const void* address, size_t bytes, const std::byte* area, size_t areaBytes) {
  const auto* const begin = static_cast<const std::byte*>(address);
  return begin >= area && begin + bytes <= area + areaBytes;
}

void checkAligned(Machine& m, const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
    m.fail(fmt::format("accesses {} bytes at an address that is not a multiple of that", bytes));
}

}  // namespace

Region* Machine::regionOf(const void* address) {
  const auto after =
      std::ranges::upper_bound(regions, static_cast<const std::byte*>(address), std::less(), &Region::data);
  if (after == regions.begin()) return nullptr;
  Region& region = *std::prev(after);
  return isWithin(address, 1, region.data, region.bytes) ? &region : nullptr;
}

Block* Machine::blockOf(const void* address) {
  if (running >= 0 && isWithin(address, 1, block().shared, launch.sharedBytes)) return &block();
  for (const auto& block : blocks)
    if (isWithin(address, 1, block->shared, launch.sharedBytes)) return block.get();
  return nullptr;
}

void Machine::checkAccess(const void* address, size_t bytes, bool onlyShared) {
  if (const Block* const owner = blockOf(address)) {
    if (owner != &block()) fail("accesses the shared memory of another block");
    if (isWithin(address, bytes, owner->shared, launch.sharedBytes)) return;
    fail(fmt::format("accesses {} bytes at {} of {} bytes of shared memory", bytes,
                     static_cast<const std::byte*>(address) - owner->shared, launch.sharedBytes));
  }
  if (onlyShared) fail("needs an address in shared memory");
  const Region* const region = regionOf(address);
  if (!region || !isWithin(address, bytes, region->data, region->bytes))
    fail(fmt::format("accesses {} bytes that are in no memory of the kernel", bytes));
}

Written* Machine::writtenAt(const void* address) {
  const auto place = [&](const std::byte* area) {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - area) / kGranule;
  };
  if (Block* const owner = blockOf(address)) return &owner->written[place(owner->shared)];
  if (Region* const region = regionOf(address)) return &region->written[place(region->data)];
  return nullptr;
}

void beforeLoad(const void* from, size_t bytes) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  checkAligned(m, from, bytes);
  m.checkAccess(from, bytes);
}

void beforeStore(void* to, size_t bytes) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  checkAligned(m, to, bytes);
  m.checkAccess(to, bytes);
  *m.writtenAt(to) = {m.running + 1, m.self().proxyFences, ++m.epoch};
  m.progress();
}

// Sanitizers see counters as atomic.
uint64_t loadRelaxed(const uint64_t* counter) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  m.checkAccess(counter, sizeof(uint64_t));
  if (!__tsan_atomic64_load) return *counter;
  const long long found =
      __tsan_atomic64_load(reinterpret_cast<const volatile long long*>(counter), __ATOMIC_RELAXED);
  // a later fenceAcquire() orders what was signalled up to here, and not what comes in between
  Thread& own = m.self();
  if (!own.observer) own.observer.emplace();
  own.observer->act([&] {
    __tsan_acquire(const_cast<uint64_t*>(counter));
    own.observed.release();
  });
  return static_cast<uint64_t>(found);
}

void fenceAcquire() {
  const Quiet quiet;
  Machine& m = machine();
  m.self().observed.acquire();
  m.yield();
}

void signal(uint64_t* counter, uint64_t amount) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  m.checkAccess(counter, sizeof(uint64_t));
  if (__tsan_atomic64_fetch_add)
    __tsan_atomic64_fetch_add(reinterpret_cast<volatile long long*>(counter), static_cast<long long>(amount),
                              __ATOMIC_RELEASE);
  else
    *counter += amount;
  m.progress();
}

uint32_t addShared(uint32_t* number, uint32_t amount) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  checkAligned(m, number, sizeof(uint32_t));
  m.checkAccess(number, sizeof(uint32_t), true);
  m.progress();
  if (__tsan_atomic32_fetch_add)
    return static_cast<uint32_t>(__tsan_atomic32_fetch_add(reinterpret_cast<volatile int*>(number),
                                                           static_cast<int>(amount), __ATOMIC_ACQ_REL));
  return std::exchange(*number, *number + amount);
}

void fenceProxyAsync() {
  const Quiet quiet;
  Machine& m = machine();
  ++m.self().proxyFences;
  m.self().seenEpoch = m.epoch;
  m.yield();
}

}  // namespace sluice::gpu::model

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

Region* Machine::findRegion(const void* address) {
  const auto after =
      std::ranges::upper_bound(regions, static_cast<const std::byte*>(address), std::less(), &Region::data);
  if (after == regions.begin()) return nullptr;
  Region& region = *std::prev(after);
  return isWithin(address, 1, region.data, region.bytes) ? &region : nullptr;
}

Block* Machine::findBlock(const void* address) {
  if (running >= 0 && isWithin(address, 1, block().shared, launch.sharedBytes)) return &block();
  for (const auto& block : blocks)
    if (isWithin(address, 1, block->shared, launch.sharedBytes)) return block.get();
  return nullptr;
}

void Machine::checkAccess(const void* address, size_t bytes, bool onlyShared) {
  if (const Block* const owner = findBlock(address)) {
    if (owner != &block()) fail("accesses the shared memory of another block");
    if (isWithin(address, bytes, owner->shared, launch.sharedBytes)) return;
    fail(fmt::format("accesses {} bytes at {} of {} bytes of shared memory", bytes,
                     static_cast<const std::byte*>(address) - owner->shared, launch.sharedBytes));
  }
  if (onlyShared) fail("needs an address in shared memory");
  const Region* const region = findRegion(address);
  if (!region || !isWithin(address, bytes, region->data, region->bytes))
    fail(fmt::format("accesses {} bytes that are in no memory of the kernel", bytes));
}

Machine::RecordPlace Machine::findRecord(const void* address) {
  const auto offset = [&](const std::byte* area) {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - area);
  };
  if (Block* const owner = findBlock(address)) return {&owner->written, offset(owner->shared)};
  if (Region* const region = findRegion(address)) return {&region->written, offset(region->data)};
  return {};
}

Written* Machine::writtenAt(const void* address) {
  const RecordPlace place = findRecord(address);
  return place.records ? place.records->find(place.offset) : nullptr;
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
  const Machine::RecordPlace place = m.findRecord(to);
  Thread& own = m.self();
  place.records->at(place.offset) = {m.running + 1, own.proxyFences, ++m.epoch};
  own.known[static_cast<size_t>(own.block)] = m.epoch;
  m.progress();
}

// Sanitizers see counters as atomic.
uint64_t loadRelaxed(const uint64_t* counter) {
  const Quiet quiet;
  Machine& m = machine();
  m.yield();
  m.checkAccess(counter, sizeof(uint64_t));
  Thread& own = m.self();
  own.lookedAt = m.epoch;
  own.apartSince = "loadRelaxed()";
  if (!__tsan_atomic64_load) return *counter;
  const long long found =
      __tsan_atomic64_load(reinterpret_cast<const volatile long long*>(counter), __ATOMIC_RELAXED);
  if (found == 0) return 0;  // nobody has signalled, so there is nothing to know
  // a later fenceAcquire() orders what was signalled up to here, and not what comes in between
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
  Thread& own = m.self();
  own.observed.acquire();
  for (uint64_t& each : own.known) each = std::max(each, own.lookedAt);
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
  Thread& own = m.self();
  learn(m.block().added, own.known);
  own.known = m.block().added;
  own.apartSince = "addShared()";
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
  m.self().copied = m.self().known;
  m.yield();
}

void fenceProxyAsyncShared() {
  const Quiet quiet;
  Machine& m = machine();
  ++m.self().proxyFences;
  m.self().seenEpoch = m.epoch;
  m.yield();
}

void checkKnown(Machine& m, const std::byte* global, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kGranule) {
    const Written* const written = m.writtenAt(global + at);
    if (!written || written->thread == 0) continue;
    const int block = m.threads[static_cast<size_t>(written->thread - 1)]->block;
    const Thread& own = m.self();
    if (written->epoch > own.known[static_cast<size_t>(block)])
      m.fail(fmt::format(
          "copies what block {} stored, without fenceAcquire() after it saw the signal of that", block));
    if (written->epoch > own.copied[static_cast<size_t>(block)])
      m.fail(
          "copies what a plain store wrote, without fenceProxyAsync() after it or after the fenceAcquire() "
          "for it");
  }
}

}  // namespace sluice::gpu::model

// The primitives of ops/gpu/hw.h on the model of the hardware. Only hw.h includes it.
#pragma once

#include <cmath>
#include <type_traits>

#include "ops/gpu/model/calls.h"

namespace sluice::gpu {

inline int threadIndex() { return model::threadIndex(); }
inline int blockIndex() { return model::blockIndex(); }
inline int blockCount() { return model::blockCount(); }
inline std::byte* sharedMemory() { return model::sharedMemory(); }

template <class T>
inline T load(const T* from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  model::beforeLoad(from, sizeof(T));
  return *from;
}
template <class T>
inline void store(T* to, T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  model::beforeStore(to, sizeof(T));
  *to = value;
}

inline uint64_t loadRelaxed(const uint64_t* counter) { return model::loadRelaxed(counter); }
inline uint64_t loadRelaxedSystem(const uint64_t* counter) { return model::loadRelaxed(counter); }
inline void fenceAcquire() { model::fenceAcquire(); }
inline void signal(uint64_t* counter, uint64_t amount) { model::signal(counter, amount); }
inline void signalSystem(uint64_t* counter, uint64_t amount) { model::signal(counter, amount); }
inline uint32_t addShared(uint32_t* number, uint32_t amount) { return model::addShared(number, amount); }
inline void fenceProxyAsync() { model::fenceProxyAsync(); }
inline void fenceProxyAsyncShared() { model::fenceProxyAsyncShared(); }
inline uint64_t globalTimer() { return model::globalTimer(); }
inline void sleepFor(uint32_t nanoseconds) { model::sleepFor(nanoseconds); }

inline void syncWarp() { model::syncWarp(); }
inline uint32_t ballot(bool value) { return model::ballot(value); }
inline uint32_t shuffle(uint32_t value, int lane) { return model::shuffle(value, lane); }
inline void syncBlock() { model::syncBlock(); }
inline void syncNamed(int barrier, int threads) { model::syncNamed(barrier, threads); }
template <int N>
inline void takeRegisters() {
  model::takeRegisters(N);
}
template <int N>
inline void releaseRegisters() {
  model::releaseRegisters(N);
}

inline void initBarrier(Barrier* barrier, int count) { model::initBarrier(barrier, count); }
inline void fenceBarrierInit() { model::fenceBarrierInit(); }
inline void arrive(Barrier* barrier) { model::arrive(barrier, 0); }
inline void arriveExpecting(Barrier* barrier, uint32_t bytes) { model::arrive(barrier, bytes); }
inline bool hasEnded(Barrier* barrier, int parity) { return model::hasEnded(barrier, parity); }

inline void copyPart(std::byte* to, const std::byte* from, bool isThere) {
  model::copyPart(to, from, isThere);
}
inline void holdForParts(Barrier* barrier) { model::holdForParts(barrier); }

inline void copyBox(std::byte* to, const TensorMap* from, Barrier* barrier, int column, int row, int outer,
                    int rows) {
  model::copyBox(to, from, barrier, column, row, outer, rows);
}
inline void storeBox(const TensorMap* to, const std::byte* from, int column, int row, int outer) {
  model::storeBox(to, from, column, row, outer, false);
}
inline void addBox(const TensorMap* to, const std::byte* from, int column, int row, int outer) {
  model::storeBox(to, from, column, row, outer, true);
}
inline void fenceMap(const TensorMap* map) { model::fenceMap(map); }
inline void copyBytes(std::byte* to, const std::byte* from, uint32_t bytes, Barrier* barrier) {
  model::copyBytes(to, from, bytes, barrier);
}
inline void storeBytes(std::byte* to, const std::byte* from, uint32_t bytes) {
  model::storeBytes(to, from, bytes);
}
inline void groupStores() { model::groupStores(); }
template <int N>
inline void waitStoresRead() {
  model::waitStores(N, true);
}
template <int N>
inline void waitStores() {
  model::waitStores(N, false);
}

inline uint64_t describe(const std::byte* tile, Major major, uint32_t pitch) {
  return model::describe(tile, major, pitch);
}
inline void fenceProducts() { model::fenceProducts(); }
template <int N, Major A, Major B>
inline void multiply(float (&sum)[N / 2], uint64_t a, uint64_t b, bool add) {
  static_assert(N == 64 || N == 128 || N == 192 || N == 256);
  model::multiply(N, A, B, sum, a, b, add);
}
inline void groupProducts() { model::groupProducts(); }
template <int N>
inline void waitProducts() {
  model::waitProducts(N);
}

inline uint32_t packBf16(float first, float second) {
  const auto rounded = [](float value) -> uint32_t {
    if (value != value) return 0x7fff;
    const auto bits = __builtin_bit_cast(uint32_t, value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return rounded(first) | rounded(second) << 16;
}

inline float firstBf16(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
inline float secondBf16(uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000); }
inline float exponential(float x) { return std::exp(x); }
inline float reciprocal(float x) { return 1 / x; }

[[noreturn]] inline void trap(const char* why) { model::trap(why); }

}  // namespace sluice::gpu

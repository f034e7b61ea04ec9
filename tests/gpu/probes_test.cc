// Facts of the hardware that kernels rely on, as small kernels: on the model here.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "ops/gpu/hw.h"
#include "ops/gpu/model/launch.h"

namespace sluice::gpu {
namespace {

using Catch::Matchers::Contains;
using model::Launch;
using model::mapOf;
using model::registerGlobal;

constexpr int kSeeds = 4;

uint16_t bf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

// Of small whole numbers, which bf16 has exactly.
std::vector<uint16_t> matrix(int rows, int columns, int seed) {
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        bf16(static_cast<float>(static_cast<int>(i * 2654435761U + static_cast<size_t>(seed)) % 17 - 8));
  return values;
}
float fromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

template <class T>
void registerAll(const std::vector<T>& values) {
  registerGlobal(values.data(), values.size() * sizeof(T));
}

// One barrier at the beginning of shared memory, made by thread 0.
Barrier* makeBarrier(int count) {
  auto* const barrier = reinterpret_cast<Barrier*>(sharedMemory());
  if (threadIndex() == 0) {
    initBarrier(barrier, count);
    fenceBarrierInit();
  }
  syncBlock();
  return barrier;
}

void await(Barrier* barrier, int parity) {
  while (!hasEnded(barrier, parity)) {
  }
}

// c [64, N] = a [64, 16] b [16, N], with a and b as the majors say in global memory.
template <int N, Major A, Major B>
void productKernel(const TensorMap* a, const TensorMap* b, float* c, int k) {
  Barrier* const barrier = makeBarrier(1);
  std::byte* const left = sharedMemory() + 1024;
  std::byte* const right = left + 64 * 128;
  constexpr uint32_t kPitch = 64 * 128;
  if (threadIndex() == 0) {
    arriveExpecting(barrier, 64 * 128 + N * 128);
    copyBox(left, a, barrier, 0, 0, 0, 64);
    for (int part = 0; part < (B == Major::kK ? 1 : N / 64); ++part)
      copyBox(right + part * kPitch, b, barrier, 64 * part, 0, 0, B == Major::kK ? N : 64);
  }
  await(barrier, 0);
  float sum[N / 2];
  fenceProducts();
  multiply<N, A, B>(sum, describe(left + k * (A == Major::kK ? 2 : 128), A, kPitch),
                    describe(right + k * (B == Major::kK ? 2 : 128), B, kPitch), false);
  groupProducts();
  waitProducts<0>();
  for (int i = 0; i < N / 2; ++i) store(c + fragmentRow(i) * N + fragmentColumn(i), sum[i]);
}

template <int N, Major A, Major B>
void checkProduct() {
  // of 64 k the 16 from `k` on count
  const std::vector<uint16_t> a = matrix(64, 64, 1),
                              b = A == B ? matrix(std::max(N, 64), 64, 2) : matrix(64, std::max(N, 64), 2);
  const bool bInRows = B == Major::kK;
  const std::vector<uint16_t> right = matrix(bInRows ? N : 64, bInRows ? 64 : N, 3);
  for (int seed = 0; seed < kSeeds; ++seed)
    for (const int k : {0, 16, 48}) {
      std::vector<float> c(64 * N);
      const TensorMap mapA = mapOf(a.data(), 2, 64, 64, 1, 128, 64 * 128, 64, 64);
      const TensorMap mapB = bInRows ? mapOf(right.data(), 2, 64, N, 1, 128, N * 128, 64, N)
                                     : mapOf(right.data(), 2, N, 64, 1, 2 * N, 128 * N, 64, 64);
      registerAll(a);
      registerAll(right);
      registerAll(c);
      const std::string problem =
          model::run({.threads = 128, .sharedBytes = 1024 + 64 * 128 + N * 128, .seed = uint64_t(seed)},
                     [&] { productKernel<N, A, B>(&mapA, &mapB, c.data(), k); });
      CHECK(problem.empty());
      INFO(problem);
      int wrong = 0;
      for (int row = 0; row < 64; ++row)
        for (int column = 0; column < N; ++column) {
          float sum = 0;
          for (int d = k; d < k + 16; ++d)
            sum += fromBf16(a[size_t(A == Major::kK ? row * 64 + d : d * 64 + row)]) *
                   fromBf16(right[size_t(bInRows ? column * 64 + d : d * N + column)]);
          wrong += c[size_t(row * N + column)] != sum;
        }
      CHECK(wrong == 0);
    }
}

TEST_CASE("products of all majors and widths are those of the elements that the maps put there") {
  checkProduct<64, Major::kK, Major::kK>();
  checkProduct<64, Major::kMn, Major::kMn>();
  checkProduct<128, Major::kK, Major::kMn>();
  checkProduct<192, Major::kMn, Major::kK>();
  checkProduct<256, Major::kK, Major::kMn>();
  checkProduct<256, Major::kK, Major::kK>();
}

TEST_CASE("a box over an edge is 0 outside, and rows that do not count are not numbers") {
  const std::vector<uint16_t> values = matrix(5, 72, 4);
  const TensorMap map = mapOf(values.data(), 2, 70, 5, 1, 144, 5 * 144, 64, 8);
  std::vector<uint16_t> found(8 * 64);
  registerAll(values);
  registerAll(found);
  const std::string problem = model::run({.threads = 128, .sharedBytes = 4096, .seed = 1}, [&] {
    Barrier* const barrier = makeBarrier(1);
    std::byte* const area = sharedMemory() + 1024;
    if (threadIndex() == 0) {
      arriveExpecting(barrier, 8 * 128);
      copyBox(area, &map, barrier, 64, 1, 0, 3);
    }
    await(barrier, 0);
    for (int i = threadIndex(); i < 8 * 64; i += 128) {
      const auto* at =
          reinterpret_cast<const uint16_t*>(area + swizzled(uint32_t(i / 64), uint32_t(i % 64 * 2)));
      store(&found[size_t(i)], load(at));
    }
  });
  CHECK(problem.empty());
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 64; ++column) {
      const uint16_t value = found[size_t(row * 64 + column)];
      const bool isThere = row + 1 < 5 && column + 64 < 70;
      if (!isThere)
        CHECK(value == 0);
      else if (row >= 3)
        CHECK(value == 0xffff);
      else
        CHECK(value == values[size_t((row + 1) * 72 + column + 64)]);
    }
}

TEST_CASE("a store of a box writes what is inside, and an addition adds each element once") {
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::vector<float> values(6 * 36, 1.0F);
    const TensorMap map = mapOf(values.data(), 4, 34, 5, 1, 144, 5 * 144, 32, 8);
    registerAll(values);
    const std::string problem =
        model::run({.threads = 128, .sharedBytes = 2048, .seed = uint64_t(seed)}, [&] {
          auto* const area = sharedMemory();
          for (int i = threadIndex(); i < 8 * 32; i += 128)
            store(reinterpret_cast<float*>(area + swizzled(uint32_t(i / 32), uint32_t(i % 32 * 4))),
                  float(i));
          fenceProxyAsync();
          syncBlock();
          if (threadIndex() == 0) {
            storeBox(&map, area, 32, 2, 0);  // two columns, three rows
            groupStores();
            waitStores<0>();
            addBox(&map, area, 0, 4, 0);  // one row
            groupStores();
            waitStores<0>();
          }
        });
    CHECK(problem.empty());
    INFO(problem);
    for (int row = 0; row < 6; ++row)
      for (int column = 0; column < 36; ++column) {
        float expected = 1;
        if (column >= 32 && column < 34 && row >= 2 && row < 5)
          expected = float((row - 2) * 32 + column - 32);
        if (column < 32 && row == 4) expected += float(column);
        CHECK(values[size_t(row * 36 + column)] == expected);
      }
  }
}

TEST_CASE("what was stored before a signal is there after an acquire, across blocks, also for copies") {
  for (int seed = 0; seed < kSeeds; ++seed) {
    alignas(64) std::vector<uint64_t> counter(8);
    std::vector<uint32_t> words(64), found(64);
    registerAll(counter);
    registerAll(words);
    registerAll(found);
    const std::string problem =
        model::run({.blocks = 2, .threads = 128, .sharedBytes = 2048, .seed = uint64_t(seed)}, [&] {
          Barrier* const barrier = makeBarrier(1);
          auto* const area = sharedMemory() + 1024;
          if (blockIndex() == 0) {
            if (threadIndex() < 64) store(&words[size_t(threadIndex())], uint32_t(threadIndex() + 5));
            syncBlock();
            if (threadIndex() == 0) signal(counter.data(), 3);
            return;
          }
          if (threadIndex() == 0) {
            while (loadRelaxed(counter.data()) < 3) sleepFor(100);
            fenceAcquire();
            fenceProxyAsync();
            arriveExpecting(barrier, 256);
            copyBytes(area, reinterpret_cast<const std::byte*>(words.data()), 256, barrier);
          }
          await(barrier, 0);
          if (threadIndex() < 64)
            store(&found[size_t(threadIndex())], load(reinterpret_cast<uint32_t*>(area) + threadIndex()));
        });
    CHECK(problem.empty());
    INFO(problem);
    for (uint32_t i = 0; i < 64; ++i) CHECK(found[i] == i + 5);
  }
}

TEST_CASE("a barrier's phases have parities 0 and 1 in turn, and it begins as if one of parity 1 had ended") {
  std::vector<uint32_t> found(4);
  registerAll(found);
  const std::string problem = model::run({.threads = 128, .sharedBytes = 1024, .seed = 2}, [&] {
    Barrier* const barrier = makeBarrier(128);
    if (threadIndex() == 0) {
      store(&found[0], uint32_t{hasEnded(barrier, 1)});
      store(&found[1], uint32_t{hasEnded(barrier, 0)});
    }
    syncBlock();
    arrive(barrier);
    await(barrier, 0);
    syncBlock();
    if (threadIndex() == 0) store(&found[2], uint32_t{hasEnded(barrier, 1)});
    syncBlock();
    arrive(barrier);
    await(barrier, 1);
    if (threadIndex() == 0) store(&found[3], uint32_t{1});
  });
  CHECK(problem.empty());
  CHECK(found == std::vector<uint32_t>{1, 0, 0, 1});
}

TEST_CASE("lanes see each other's words, and warpgroups get the registers that others give back") {
  std::vector<uint32_t> found(384);
  registerAll(found);
  const std::string problem = model::run({.threads = 384, .seed = 3}, [&] {
    if (threadIndex() < 128)
      releaseRegisters<40>();
    else
      takeRegisters<232>();
    const uint32_t bits = ballot(laneIndex() % 3 == 0);
    const uint32_t other = shuffle(uint32_t(threadIndex()), 31 - laneIndex());
    store(&found[size_t(threadIndex())], bits == 0x49249249 ? other : 0xffffffff);
  });
  CHECK(problem.empty());
  for (int t = 0; t < 384; ++t) CHECK(found[size_t(t)] == uint32_t(t / 32 * 32 + 31 - t % 32));
}

// What a kernel of one block of 128 threads with `words` of global memory did wrong.
template <class Kernel>
std::string wrongWith(const Kernel& kernel, std::vector<uint32_t> words = std::vector<uint32_t>(1024)) {
  registerAll(words);
  return model::run({.threads = 128, .sharedBytes = 4096, .seed = 1}, [&] { kernel(words.data()); });
}

TEST_CASE("a broken rule ends the kernel with its thread and what it did") {
  const auto only = [](int thread) { return threadIndex() == thread; };
  CHECK_THAT(wrongWith([&](uint32_t* words) {
               if (only(7)) store(words + 1024, 1U);
             }),
             Contains("block 0, thread 7: accesses 4 bytes that are in no memory of the kernel"));
  CHECK_THAT(wrongWith([&](uint32_t*) {
               if (only(0)) load(reinterpret_cast<uint32_t*>(sharedMemory() + 4095));
             }),
             Contains("not a multiple"));
  CHECK_THAT(wrongWith([&](uint32_t* words) {
               Barrier* const barrier = makeBarrier(1);
               if (!only(0)) return;
               arriveExpecting(barrier, 64);
               copyBytes(sharedMemory() + 24, reinterpret_cast<std::byte*>(words), 64, barrier);
             }),
             Contains("copies at 24 of shared memory, expected a multiple of 16"));
  CHECK_THAT(wrongWith([&](uint32_t*) {
               if (!only(5)) syncBlock();
             }),
             Contains("no thread goes on; block 0, threads 0 to 4 wait for syncBlock()"));
  CHECK_THAT(wrongWith([&](uint32_t*) {
               Barrier* const barrier = makeBarrier(1);
               if (!only(0)) return;
               arriveExpecting(barrier, 64);
               arrive(barrier);  // the phase has its arrival, and waits for bytes
             }),
             Contains("arrives at the barrier at 0 of shared memory more often than 1 times in a phase"));
  CHECK_THAT(wrongWith([&](uint32_t*) {
               auto* const barrier = reinterpret_cast<Barrier*>(sharedMemory());
               if (only(0)) initBarrier(barrier, 1);
               syncBlock();
               if (only(64)) arrive(barrier);
             }),
             Contains("thread 64: uses a barrier whose maker has not called fenceBarrierInit()"));
  CHECK_THAT(wrongWith([&](uint32_t*) {
               if (only(3)) takeRegisters<248>();
             }),
             Contains("takeRegisters(248)"));
  CHECK_THAT(wrongWith([&](uint32_t*) { laneIndex() == 1 ? syncWarp() : (void)ballot(true); }),
             Contains("where others of its warp call"));
}

TEST_CASE("a block that ends while a copy reads its shared memory is found by some seed") {
  int found = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    std::vector<uint32_t> words(1024);
    registerAll(words);
    const std::string problem = model::run({.threads = 128, .sharedBytes = 4096, .seed = seed}, [&] {
      if (threadIndex() != 0) return;
      storeBytes(reinterpret_cast<std::byte*>(words.data()), sharedMemory(), 16);
      groupStores();
    });
    found += problem.find("waitStoresRead() is missing") != std::string::npos;
  }
  CHECK(found > 0);
}

TEST_CASE("missing fences between stores, copies and products are found") {
  CHECK_THAT(wrongWith([](uint32_t* words) {
               if (threadIndex() != 0) return;
               store(reinterpret_cast<uint32_t*>(sharedMemory()), 1U);
               storeBytes(reinterpret_cast<std::byte*>(words), sharedMemory(), 16);
               groupStores();
               waitStores<0>();
             }),
             Contains("a copy reads what it stored without fenceProxyAsync()"));
  CHECK_THAT(wrongWith([](uint32_t* words) {
               Barrier* const barrier = makeBarrier(1);
               if (threadIndex() != 0) return;
               store(words, 1U);
               arriveExpecting(barrier, 16);
               copyBytes(sharedMemory() + 1024, reinterpret_cast<std::byte*>(words), 16, barrier);
             }),
             Contains("copies what a plain store wrote, without fenceProxyAsync() after it"));
  const auto product = [](const auto& between) {
    return wrongWith([&](uint32_t*) {
      float sum[32] = {};
      const uint64_t a = describe(sharedMemory(), Major::kK, 0);
      between(sum, a);
      groupProducts();
      waitProducts<0>();
    });
  };
  CHECK_THAT(
      product([](float(&sum)[32], uint64_t a) { multiply<64, Major::kMn, Major::kMn>(sum, a, a, true); }),
      Contains("without fenceProducts()"));
  CHECK_THAT(product([](float(&sum)[32], uint64_t a) {
               fenceProducts();
               multiply<64, Major::kMn, Major::kMn>(sum, a, a, true);
               sum[3] += 1;
             }),
             Contains("sums were touched while products were in flight"));
  CHECK_THAT(product([](float(&sum)[32], uint64_t a) {
               fenceProducts();
               multiply<64, Major::kMn, Major::kMn>(sum, a, a, threadIndex() != 9);
             }),
             Contains("another product than the other threads"));
}

}  // namespace
}  // namespace sluice::gpu

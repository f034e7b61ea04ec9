// Probes on the model of the hardware, which is made of the same facts; and that it names each rule that a
// kernel breaks.
#include "ops/gpu/probes.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "ops/gpu/model/launch.h"
#include "runtime/api/context.h"
#include "tests/gpu/model_probes.h"
#include "tests/runtime/gpu/model_group.h"
#include "tools/gpu_check/probes.h"

namespace sluice::gpu {
namespace {

using Catch::Matchers::Contains;
using model::registerGlobal;
using probes::makeBarrier;
using tools::CheckResult;
using tools::LaunchProbe;

constexpr uint64_t kSeeds = 2;

// Each result by the name of its probe; `edit` makes another machine of that of the model.
std::map<std::string, CheckResult> resultsWith(uint64_t seed,
                                               const std::function<LaunchProbe(LaunchProbe)>& edit,
                                               const std::string& only = {}) {
  ModelGroup group(1, {});
  LocalRanks ranks(1);
  auto backend = group.backends()(ranks.transport(0));
  REQUIRE(backend);
  tools::ProbeMachine machine = modelMachine(seed);
  machine.only = only;
  if (edit) machine.launch = edit(std::move(machine.launch));
  std::map<std::string, CheckResult> results;
  const bool passed =
      runProbes(**backend, machine, [&](const CheckResult& result) { results[result.name] = result; });
  bool all = true;
  for (const auto& [name, result] : results) all &= result.passed;
  CHECK(passed == all);
  return results;
}

TEST_CASE("the model has the facts of which it is made") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto results = resultsWith(1000 * seed, {});
    CHECK(results.size() == 21);
    for (const auto& [name, result] : results) {
      INFO(name << ": " << result.text);
      CHECK(result.passed);
    }
    CHECK(results.at("probe: subnormal numbers in products").text ==
          "subnormal factors kept, results kept, sums kept");
    CHECK(results.at("probe: subnormal numbers in additions of boxes").text ==
          "subnormal addends kept, sums kept, results kept");
    CHECK(results.at("probe: maps in memory").text == "right with a fence");
  }
}

TEST_CASE("every probe fails where its kernel does nothing") {
  const auto results =
      resultsWith(0, [](const LaunchProbe&) { return [](const ProbeLaunch&, auto) { return Status(); }; });
  for (const auto& [name, result] : results) {
    INFO(name << ": " << result.text);
    CHECK(!result.passed);
    CHECK_THAT(result.text, Contains("expected") || Contains("wrong words"));
  }
}

TEST_CASE("every probe fails where its kernel fails, or waits too long") {
  const auto failed = resultsWith(0, [](const LaunchProbe&) {
    return [](const ProbeLaunch&, auto) { return Status(Error{"no machine"}); };
  });
  const auto late = resultsWith(0, [](const LaunchProbe&) {
    return [](const ProbeLaunch& probe, auto) {
      *probe.arguments.late = 1;
      return Status();
    };
  });
  for (const auto& [name, result] : failed) CHECK(result.text == "no machine");
  for (const auto& [name, result] : late) {
    CHECK(!result.passed);
    CHECK(result.text == "a wait of the kernel did not end within 50 ms");
  }
}

// A machine that does something else than it was asked for.
CheckResult resultWith(const std::string& probe, const std::function<void(ProbeLaunch&)>& edit) {
  return resultsWith(
             0,
             [&](const LaunchProbe& launch) {
               return [launch, edit](const ProbeLaunch& asked, auto memory) {
                 ProbeLaunch probe = asked;
                 edit(probe);
                 return launch(probe, memory);
               };
             },
             probe)
      .at("probe: " + probe);
}

TEST_CASE("a fact that does not hold fails its probe, and the text says where") {
  CHECK_THAT(resultWith("products of 128 columns",
                        [](ProbeLaunch& probe) {
                          if (probe.form.b == Major::kMn) probe.arguments.number = 0;
                        })
                 .text,
             Contains("a along k, b along columns, k from 16: row 0, column 0: found"));
  CHECK_THAT(resultWith("boxes at any column", [](ProbeLaunch& probe) { probe.arguments.column &= ~7; }).text,
             Contains("box at column 1, row 0, matrix 0: its row 0, column 0: found 0x1, expected 0x2"));
  CHECK_THAT(resultWith("edges of boxes", [](ProbeLaunch& probe) { probe.arguments.outer = 0; }).text,
             Contains("box at column 64, row 4, matrix 1"));
  CHECK_THAT(resultWith("additions of boxes", [](ProbeLaunch& probe) { probe.arguments.number = 0; }).text,
             Contains("element 0 of memory: found 5000, expected 5001"));
  CHECK_THAT(resultWith("copies of bytes", [](ProbeLaunch& probe) { probe.arguments.number = 64; }).text,
             Contains("16 bytes from 0 to 16: byte 32: found 17, expected 238"));
  CHECK_THAT(resultWith("exponential",
                        [](ProbeLaunch& probe) {
                          if (probe.probe == Probe::kExponential) probe.probe = Probe::kReciprocal;
                        })
                 .text,
             Contains("of 0 found inf, expected 1"));
  CHECK_THAT(resultWith("signals across blocks",
                        [](ProbeLaunch& probe) {
                          if (probe.probe == Probe::kSignal) --probe.arguments.number;
                        })
                 .text,
             Contains("signalled 2 and 2 times, expected 3"));
  CHECK_THAT(resultWith("maps in memory", [](ProbeLaunch& probe) { probe.arguments.row = 1; }).text,
             Contains("with a fence: box at column 0, row 0, matrix 0: its row 0, column 0"));
}

// What a kernel of one block of 128 threads with `words` of global memory did wrong.
template <class Kernel>
std::string wrongWith(const Kernel& kernel, std::vector<uint32_t> words = std::vector<uint32_t>(1024)) {
  registerGlobal(words.data(), words.size() * sizeof(uint32_t));
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
  std::vector<TensorMap> inMemory = {model::makeMap(nullptr, 2, 64, 1, 1, 128, 128, 64, 1)};
  registerGlobal(inMemory.data(), sizeof(TensorMap));
  CHECK_THAT(wrongWith([&](uint32_t*) {
               Barrier* const barrier = makeBarrier(1);
               if (!only(0)) return;
               arriveExpecting(barrier, 128);
               copyBox(sharedMemory() + 128, inMemory.data(), barrier, 0, 0, 0, 0);
             }),
             Contains("copies by a TensorMap in memory without fenceMap()"));
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

// A warp waits, and then calls something that hardware wants from all lanes together.
template <class Wait, class Call>
std::string wrongAfter(const Wait& wait, const Call& call) {
  return wrongWith([&](uint32_t* words) {
    Barrier* const barrier = makeBarrier(1);
    if (threadIndex() == 0) arrive(barrier);
    wait(words, barrier);
    call();
  });
}
void awaitApart(uint32_t*, Barrier* barrier) {
  while (!hasEnded(barrier, 0)) continue;
}

TEST_CASE("an aligned call of a warp whose lanes may be apart is stopped") {
  const std::string missing = "that each lane may leave at another time: syncWarp() is missing";
  float sum[32] = {};
  const auto product = [&sum] { multiply<64, Major::kMn, Major::kMn>(sum, 0, 0, false); };
  CHECK_THAT(wrongAfter(awaitApart, [] { fenceProducts(); }),
             Contains("calls fenceProducts() after hasEnded() " + missing));
  CHECK_THAT(wrongAfter(awaitApart, product), Contains("calls multiply() after hasEnded() " + missing));
  CHECK_THAT(wrongAfter(awaitApart, [] { groupProducts(); }),
             Contains("calls groupProducts() after hasEnded() " + missing));
  CHECK_THAT(wrongAfter(awaitApart, [] { waitProducts<0>(); }), Contains("calls waitProducts<0>() after"));
  CHECK_THAT(wrongAfter(awaitApart, [] { takeRegisters<240>(); }),
             Contains("calls takeRegisters(240) after"));
  CHECK_THAT(wrongAfter(awaitApart, [] { releaseRegisters<24>(); }),
             Contains("calls releaseRegisters(24) after"));

  const auto fence = [] { fenceProducts(); };
  CHECK_THAT(
      wrongAfter([](uint32_t* words, Barrier*) { loadRelaxed(reinterpret_cast<const uint64_t*>(words)); },
                 fence),
      Contains("calls fenceProducts() after loadRelaxed()"));
  CHECK_THAT(wrongAfter([](uint32_t*, Barrier*) { globalTimer(); }, fence),
             Contains("calls fenceProducts() after globalTimer()"));
  CHECK_THAT(
      wrongAfter([](uint32_t*, Barrier*) { addShared(reinterpret_cast<uint32_t*>(sharedMemory() + 64), 1); },
                 fence),
      Contains("calls fenceProducts() after addShared()"));
  // one lane is enough
  CHECK_THAT(wrongAfter(
                 [](uint32_t* words, Barrier* barrier) {
                   if (threadIndex() == 77) awaitApart(words, barrier);
                 },
                 fence),
             Contains("thread 77: calls fenceProducts() after hasEnded()"));
}

TEST_CASE("a warp that has met again after a wait may make aligned calls") {
  const auto wrongWithMeeting = [](const auto& meet) {
    return wrongAfter(
        [&meet](uint32_t* words, Barrier* barrier) {
          awaitApart(words, barrier);
          meet();
        },
        [] {
          fenceProducts();
          groupProducts();
          waitProducts<0>();
        });
  };
  CHECK(wrongWithMeeting([] { syncWarp(); }) == "");
  CHECK(wrongWithMeeting([] { ballot(true); }) == "");
  CHECK(wrongWithMeeting([] { shuffle(1, 0); }) == "");
  CHECK(wrongWithMeeting([] { syncNamed(1, 128); }) == "");
  CHECK(wrongWithMeeting([] { syncBlock(); }) == "");
}

// Block 0 stores and signals; in block 1 a thread sees the signal, and then a thread copies. `see` and `copy`
// are what these two do before that, with a barrier between them where they are two.
template <class See, class Fence>
std::string wrongCopy(int copier, const See& see, const Fence& fence) {
  std::vector<uint32_t> words(64);
  registerGlobal(words.data(), words.size() * sizeof(uint32_t));
  uint64_t counter = 0;
  registerGlobal(&counter, sizeof(counter));
  return model::run({.blocks = 2, .threads = 128, .sharedBytes = 4096, .seed = 1}, [&] {
    Barrier* const barrier = makeBarrier(1);
    if (blockIndex() == 0) {
      if (threadIndex() != 0) return;
      store(&words[0], 1U);
      signal(&counter, 1);
      return;
    }
    if (threadIndex() == 0) {
      while (loadRelaxed(&counter) == 0) sleepFor(100);
      see(&counter);
    }
    if (copier != 0) syncBlock();
    if (threadIndex() != copier) return;
    fence();
    arriveExpecting(barrier, 16);
    copyBytes(sharedMemory() + 1024, reinterpret_cast<const std::byte*>(words.data()), 16, barrier);
    awaitApart(nullptr, barrier);
  });
}

TEST_CASE("a proxy fence counts only after the acquire that it belongs to") {
  const auto nothing = [](auto...) {};
  const auto acquire = [](auto...) { fenceAcquire(); };
  const auto fence = [](auto...) { fenceProxyAsync(); };
  const auto noAcquire = Contains("copies what block 0 stored, without fenceAcquire()");
  const auto noFence = Contains("copies what a plain store wrote, without fenceProxyAsync() after");
  for (const int copier : {0, 96}) {
    CAPTURE(copier);
    CHECK(wrongCopy(copier, acquire, fence) == "");
    CHECK_THAT(wrongCopy(copier, nothing, fence), noAcquire);
    CHECK_THAT(wrongCopy(copier, acquire, nothing), noFence);
    // before the acquire, a signal was seen that no acquire had followed
    CHECK_THAT(wrongCopy(
                   copier,
                   [](auto...) {
                     fenceProxyAsync();
                     fenceAcquire();
                   },
                   nothing),
               noFence);
  }
  // the fence is that of the thread that copies
  CHECK_THAT(wrongCopy(
                 96,
                 [](auto...) {
                   fenceAcquire();
                   fenceProxyAsync();
                 },
                 nothing),
             noFence);
}

TEST_CASE("memory that is only mapped takes none, however large it is") {
  constexpr size_t kBytes = size_t{1} << 37;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  registerGlobal(memory, kBytes);
  const std::string wrong = model::run({.threads = 128, .sharedBytes = 4096, .seed = 1}, [&] {
    Barrier* const barrier = makeBarrier(1);
    auto* const words = static_cast<std::byte*>(memory) + threadIndex() * (kBytes / 128);
    store(reinterpret_cast<uint32_t*>(words), 7U);
    if (threadIndex() != 127) return;
    arriveExpecting(barrier, 16);
    copyBytes(sharedMemory() + 1024, words, 16, barrier);
  });
  CHECK_THAT(wrong, Contains("thread 127: copies what a plain store wrote, without fenceProxyAsync()"));
  ::munmap(memory, kBytes);
}

TEST_CASE("a block that ends while a copy reads its shared memory is found by some seed") {
  int found = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    std::vector<uint32_t> words(1024);
    registerGlobal(words.data(), words.size() * sizeof(uint32_t));
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

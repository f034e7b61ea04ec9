// What a transport over a network promises. Every rank runs the same cases in the same order.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "runtime/comm/all_gather.h"
#include "tests/proof/random_steps.h"
#include "tests/runtime/comm/network/network_ranks.h"
#include "tests/testing/exchange_program.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/spare_places.h"

namespace sluice {
namespace {

TEST_CASE("what was put before a signal is visible to whoever sees the signal") {
  auto transport = joinNetwork();
  const SymmetricHandle data = *transport->allocate(4096), event = *transport->allocate(64);
  const int next = (transport->rank() + 1) % transport->size();
  for (uint64_t round = 1; round <= 300; ++round) {
    transport->put(next, data, round % 512 * 8, &round, sizeof(round));
    transport->signal(next, event, 0, 1);
    REQUIRE(awaitWord(*transport, event, 0, round));
    uint64_t value = 0;
    std::memcpy(&value, transport->local(data) + round % 512 * 8, sizeof(value));
    REQUIRE(value == round);
  }
}

TEST_CASE("puts and signals of several threads to all ranks at once arrive whole and are all counted") {
  auto transport = joinNetwork();
  const int ranks = transport->size(), own = transport->rank();
  constexpr int kThreads = 3, kPuts = 24;
  constexpr size_t kPart = 40'000;
  const size_t ofThread = kPuts * kPart, ofRank = kThreads * ofThread;
  const SymmetricHandle data = *transport->allocate(ofRank * static_cast<size_t>(ranks));
  const SymmetricHandle events = *transport->allocate(64 * static_cast<size_t>(ranks));
  AllGather gather = *AllGather::create(*transport, 1);
  for (uint8_t round = 1; round <= 3; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(own * kThreads + t));
        std::vector<std::byte> part(kPart);
        for (int i = 0; i < kPuts; ++i)
          for (int to = 0; to < ranks; ++to) {
            const size_t bytes = i % 5 ? random() % 600 : random() % kPart;
            std::memset(part.data(), round * 7 + own + i, bytes);
            const size_t at = static_cast<size_t>(own) * ofRank + static_cast<size_t>(t) * ofThread;
            transport->put(to, data, at + static_cast<size_t>(i) * kPart + 8, part.data(), bytes);
            transport->put(to, data, at + static_cast<size_t>(i) * kPart, &bytes, sizeof(bytes));
            transport->signal(to, events, 64 * static_cast<size_t>(own), 1);
          }
      });
    for (int from = 0; from < ranks; ++from)
      REQUIRE(awaitWord(*transport, events, 64 * static_cast<size_t>(from), round * kThreads * kPuts));
    for (std::thread& thread : threads) thread.join();
    int wrong = 0;
    for (int from = 0; from < ranks; ++from)
      for (int i = 0; i < kThreads * kPuts; ++i) {
        const std::byte* part =
            transport->local(data) + static_cast<size_t>(from) * ofRank + static_cast<size_t>(i) * kPart;
        size_t bytes = 0;
        std::memcpy(&bytes, part, sizeof(bytes));
        for (size_t b = 0; b < bytes && b < kPart; ++b)
          wrong += part[8 + b] != static_cast<std::byte>(round * 7 + from + i % kPuts);
        wrong += bytes > kPart;
      }
    CHECK(wrong == 0);
    meet(gather, *transport);  // nothing is put again before all have checked
  }
  for (int from = 0; from < ranks; ++from)
    CHECK(wordOf(*transport, events, 64 * static_cast<size_t>(from)).load() == 3 * kThreads * kPuts);
}

TEST_CASE("more signals than a mailbox holds all count, beside those of neighbours and of the rank itself") {
  auto transport = joinNetwork();
  const SymmetricHandle event = *transport->allocate(64);
  AllGather gather = *AllGather::create(*transport, 1);
  constexpr uint64_t kSignals = 5000;
  for (uint64_t i = 0; i < kSignals; ++i)
    for (int to = 0; to < transport->size(); ++to) transport->signal(to, event, 8, 3);
  CHECK(awaitWord(*transport, event, 8, kSignals * 3 * static_cast<uint64_t>(transport->size())));
  meet(gather, *transport);
  CHECK(wordOf(*transport, event, 8).load() == kSignals * 3 * static_cast<uint64_t>(transport->size()));
}

TEST_CASE("posts to one word keep their order") {
  auto transport = joinNetwork();
  const SymmetricHandle words = *transport->allocate(4096);
  AllGather gather = *AllGather::create(*transport, 1);
  const int next = (transport->rank() + 1) % transport->size();
  for (uint64_t value = 1; value <= 1500; ++value) transport->post(next, words, 0, value);
  transport->post(next, words, 8, ~uint64_t{0});
  CHECK(awaitWord(*transport, words, 8, ~uint64_t{0}));
  CHECK(wordOf(*transport, words).load() == 1500);
  meet(gather, *transport);
}

TEST_CASE("ranks that allocate different sizes are all told so, and can go on") {
  auto transport = joinNetwork();
  const auto handle = transport->allocate(transport->rank() == 1 ? 256 : 128);
  REQUIRE_FALSE(handle.ok());
  CHECK(handle.error().message == "symmetric allocation 0 has 128 bytes at rank 0 and 256 at rank 1");
  AllGather gather = *AllGather::create(*transport, 1);
  meet(gather, *transport);
}

TEST_CASE("the abort of one rank is what every rank reads, whatever was under way") {
  auto transport = joinNetwork();
  const SymmetricHandle data = *transport->allocate(8 << 20), event = *transport->allocate(64);
  CHECK_FALSE(transport->isAborted());
  AllGather gather = *AllGather::create(*transport, 1);
  meet(gather, *transport);
  const std::vector<std::byte> much(8 << 20);
  const int next = (transport->rank() + 1) % transport->size();
  transport->signal(1, event, 0, 1);  // the abort would end a meeting that another rank has not left yet
  transport->put(next, data, 0, much.data(), much.size());
  if (transport->rank() == 1) {
    CHECK(awaitWord(*transport, event, 0, transport->size()));
    transport->abort("first");
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!transport->isAborted() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  transport->abort("second");
  CHECK(transport->abortMessage() == "first");
  CHECK(transport->lostRank() == -1);
  CHECK_FALSE(transport->allocate(64).ok());
}

TEST_CASE("a rank that does not come to an allocation is named at the limit") {
  auto transport = joinNetwork(1);
  AllGather gather = *AllGather::create(*transport, 1);
  meet(gather, *transport);
  if (transport->rank() != 0) {
    const auto handle = transport->allocate(64);
    REQUIRE_FALSE(handle.ok());
    CHECK(handle.error().message.ends_with("waited 1 s for rank 0 to make symmetric allocation 1"));
  }
  while (!transport->isAborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_CASE("a rank that has left is known to have left, and what it sent is there") {
  auto transport = joinNetwork();
  const SymmetricHandle event = *transport->allocate(64);
  if (transport->rank() == 1) {
    for (int to = 0; to < transport->size(); ++to) transport->signal(to, event, 0, 1);
    transport.reset();  // waits for the others
    return;
  }
  while (!transport->hasLeft(1)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(wordOf(*transport, event).load() == 1);
  CHECK_FALSE(transport->hasLeft(transport->rank()));
}

TEST_CASE("the worst case is reserved, not taken") {
  auto transport = joinNetwork();
  const auto handle = transport->allocate(size_t{1} << 36);  // 64 GiB: more than a machine of the suite has
  REQUIRE(handle.ok());
  std::byte* memory = transport->local(*handle);
  CHECK(memory[size_t{1} << 35] == std::byte{0});
  memory[(size_t{1} << 36) - 1] = std::byte{1};
}

// Compares its own outputs of the layer: over the transport if there is one, else with ranks that are
// threads.
void compareLayer(MoeShape shape, const tools::InputsSpec& spec, int threads) {
  auto transport = joinNetwork();
  shape.ranks = transport->size();
  auto program = Program::fromTaskProgram(buildMoeProgram(shape));
  REQUIRE(program.ok());
  LayerData expected = makeLayerData(program->tables(), spec), data = makeLayerData(program->tables(), spec);
  REQUIRE(runLayer(*program, {.threads = 1}, expected).ok());
  const int rank = transport->rank();
  {
    auto context = Context::create(*program, *transport, {.threads = threads});
    INFO((context ? "" : context.error().message));
    REQUIRE(context.ok());
    REQUIRE(bindAll(data, rank, **context).ok());
    for (int repeat = 0; repeat < 2; ++repeat)
      for (const char* entry : {"forward", "backward"}) {
        const Status ran = (*context)->run(entry);
        INFO((ran ? "" : ran.error().message));
        REQUIRE(ran.ok());
      }
  }
  for (const auto& [name, tensor] : data.outputs[static_cast<size_t>(rank)]) {
    INFO(name << " of rank " << rank);
    const tools::Tensor& right = expected.outputs[static_cast<size_t>(rank)].at(name);
    REQUIRE(tensor.bytes() == right.bytes());
    CHECK((tensor.bytes() == 0 || std::memcmp(tensor.data(), right.data(), tensor.bytes()) == 0));
  }
}

TEST_CASE("a layer gives the same bits as with threads") {
  const MoeShape shape{.experts = 8, .topK = 3, .hidden = 160, .intermediate = 96, .maxTokens = 200};
  tools::InputsSpec spec;
  spec.tokens.ragged = true;
  spec.tokens.most = 150;
  compareLayer(shape, spec, 2);
}

TEST_CASE("a layer whose rows all go to one rank gives the same bits as with threads") {
  const MoeShape shape{
      .experts = 4, .topK = 2, .hidden = 75, .intermediate = 51, .maxTokens = 64, .fused = true};
  tools::InputsSpec spec;
  spec.tokens.most = 50;
  spec.routing.kind = tools::RoutingKind::kOneHot;
  compareLayer(shape, spec, 1);
}

// Compares the bits of its own outputs in random steps.
void compareSteps(const std::function<TaskProgram(int ranks)>& make) {
  auto transport = joinNetwork();
  const TaskProgram tables = make(transport->size());
  auto program = Program::fromTaskProgram(tables);
  REQUIRE(program.ok());
  std::vector<RandomStep> steps, asThreads;
  for (auto* made : {&steps, &asThreads})
    for (uint64_t seed = 0; seed < 6; ++seed) made->push_back(randomStep(tables, seed));
  const StepsRun expected = runSteps(*program, asThreads, {.threads = 1}, 0);
  REQUIRE(expected.error == "");
  std::vector<uint64_t> bits;
  auto context = Context::create(*program, *transport, {.threads = 2});
  REQUIRE(context.ok());
  const Status ran = runStepsAt(transport->rank(), **context, tables, steps, bits);
  REQUIRE((ran ? "" : ran.error().message) == "");
  const auto first = expected.bits.begin() + transport->rank() * std::ssize(bits);
  REQUIRE(expected.bits.size() == bits.size() * static_cast<size_t>(transport->size()));
  CHECK(std::equal(bits.begin(), bits.end(), first));
}

TEST_CASE("a dispatch and a combine alone give the same bits as with threads") {
  for (const bool isFloat : {true, false})
    compareSteps([&](int ranks) {
      return buildExchangeProgram({.isFloat = isFloat, .ranks = ranks, .experts = 5, .hidden = 70});
    });
}

TEST_CASE("experts with copies give the same bits as with threads") {
  compareSteps(
      [](int ranks) { return spareExperts(buildMoeProgram({.ranks = ranks, .experts = 7, .topK = 3}), 3); });
}

// The cases below end with an error: faults.sh runs them and checks what mpirun prints and returns.

void meetForever(Transport& transport, const std::function<void(int round)>& atRankOne) {
  AllGather gather = *AllGather::create(transport, 1);
  const std::byte nothing{};
  for (int round = 0;; ++round) {
    if (transport.rank() == 1) atRankOne(round);
    if (const Status all = gather.gather({&nothing, 1}, {"the meeting", "of the test"}, 2); !all) {
      std::printf("SURVIVOR %d: %s\n", transport.rank(), all.error().message.c_str());
      std::fflush(stdout);
      return;
    }
  }
}

TEST_CASE("rank 1 is killed", "[.killed]") {
  auto transport = joinNetwork();
  meetForever(*transport, [](int round) {
    if (round == 50) std::raise(SIGKILL);
  });
  FAIL("the step failed");
}

TEST_CASE("rank 1 exits in the middle of a step", "[.exits]") {
  auto transport = joinNetwork();
  meetForever(*transport, [](int round) {
    if (round == 50) std::_Exit(3);
  });
  FAIL("the step failed");
}

TEST_CASE("rank 1 stops", "[.stops]") {
  auto transport = joinNetwork(2);
  meetForever(*transport, [](int round) {
    if (round == 50) std::raise(SIGSTOP);
  });
  // the transport ends here: it does not wait for the rank for ever, and ends the job
}

TEST_CASE("rank 1 throws out of a step", "[.throws]") {
  auto transport = joinNetwork();
  meetForever(*transport, [](int round) {
    if (round == 50) FAIL("of purpose");
  });
}

}  // namespace
}  // namespace sluice

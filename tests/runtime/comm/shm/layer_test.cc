// The whole layer with ranks that are processes: the same bits as with ranks that are threads.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "tests/proof/random_steps.h"
#include "tests/runtime/comm/shm/joined_ranks.h"
#include "tests/testing/exchange_program.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/spare_places.h"

namespace sluice {
namespace {

MoeShape shapeFor(int ranks, int experts) {
  return {.ranks = ranks,
          .experts = experts,
          .topK = std::min(3, experts),
          .hidden = 75,
          .intermediate = 51,
          .maxTokens = 90,
          .cores = 3,
          .slotRows = 32,
          .tileN = 32,
          .tileM = 32};
}

tools::InputsSpec specFor(int ranks) {
  tools::InputsSpec spec;
  spec.routing = {tools::RoutingKind::kZipf, 1.2};
  spec.seed = 7;
  for (int rank = 0; rank < ranks; ++rank) spec.tokens.counts.push_back(90 - 40 * (rank % 3));
  return spec;
}

// The hash of the outputs of one rank.
std::string takeHash(LayerData& data, int rank) {
  LayerData own;
  own.outputs.push_back(std::move(data.outputs[rank]));
  return fmt::format("{:016x}", hashOutputs(own));
}

std::string describe(const Status& status) { return status ? "" : status.error().message; }

// All hashes by rank, one per line. Runs in a separate process, because the test itself must have one thread.
std::string runAsThreads(int ranks, int experts) {
  Processes process(1, [&](const Child&) -> std::string {
    auto program = Program::fromTaskProgram(buildMoeProgram(shapeFor(ranks, experts)));
    if (!program) return program.error().message;
    LayerData data = makeLayerData(program->tables(), specFor(ranks));
    if (Status ran = runLayer(*program, {.threads = 2}, data); !ran) return ran.error().message;
    std::string hashes;
    for (int rank = 0; rank < ranks; ++rank) hashes += takeHash(data, rank) + "\n";
    return hashes;
  });
  return process.wait(300)[0].text;
}

// Two steps each way: the second meets counters and boards that were used.
std::string runOneRank(Transport& transport, int ranks, int experts) {
  auto program = Program::fromTaskProgram(buildMoeProgram(shapeFor(ranks, experts)));
  if (!program) return program.error().message;
  LayerData data = makeLayerData(program->tables(), specFor(ranks));
  auto context = Context::create(*program, transport, {.threads = 2});
  if (!context) return context.error().message;
  if (Status bound = bindAll(data, transport.rank(), **context); !bound) return describe(bound);
  for (int step = 0; step < 2; ++step)
    for (const char* entry : {"forward", "backward"})
      if (Status ran = (*context)->run(entry); !ran) return describe(ran);
  return takeHash(data, transport.rank());
}

TEST_CASE("a layer gives the same bits, forward and backward, by processes and by threads") {
  // ranks that own as many experts, other numbers of them, and none
  for (const auto& [ranks, experts] : {std::pair{1, 8}, {2, 8}, {4, 8}, {3, 8}, {3, 2}}) {
    INFO(ranks << " ranks, " << experts << " experts");
    const auto run = [ranks = ranks, experts = experts](Transport& transport) {
      return runOneRank(transport, ranks, experts);
    };
    const auto hashes = runProcesses(ranks, run);
    std::string all;
    for (const std::string& hash : hashes) all += hash + "\n";
    CHECK(all.size() == 17 * hashes.size());
    CHECK(all == runAsThreads(ranks, experts));
  }
}

std::vector<RandomStep> findSteps(const TaskProgram& program) {
  std::vector<RandomStep> steps;
  for (uint64_t seed = 0; seed < 6; ++seed) steps.push_back(randomStep(program, seed));
  return steps;
}

std::string textOf(const std::vector<uint64_t>& bits) { return fmt::format("{:016x}", fmt::join(bits, " ")); }

// The hashes of random steps of all ranks, in a process of their own.
std::string stepsAsThreads(const TaskProgram& tables) {
  Processes process(1, [&](const Child&) -> std::string {
    auto program = Program::fromTaskProgram(tables);
    if (!program) return program.error().message;
    std::vector<RandomStep> steps = findSteps(tables);
    const StepsRun run = runSteps(*program, steps, {.threads = 2}, 0);
    return run.error.empty() ? textOf(run.bits) : run.error;
  });
  return process.wait(300)[0].text;
}

std::string stepsOfRank(const TaskProgram& tables, Transport& transport) {
  auto program = Program::fromTaskProgram(tables);
  if (!program) return program.error().message;
  auto context = Context::create(*program, transport, {.threads = 2});
  if (!context) return context.error().message;
  std::vector<RandomStep> steps = findSteps(tables);
  std::vector<uint64_t> bits;
  const Status ran = runStepsAt(transport.rank(), **context, tables, steps, bits);
  return ran ? textOf(bits) : describe(ran);
}

TEST_CASE("a dispatch and a combine alone, and experts with copies, give the same bits by processes") {
  for (const int ranks : {1, 2, 3, 4})
    for (const TaskProgram& program :
         {buildExchangeProgram({.ranks = ranks, .experts = 5}),
          spareExperts(buildExchangeProgram({.isFloat = false, .ranks = ranks, .experts = 5}), 2),
          spareExperts(buildMoeProgram(shapeFor(ranks, 7)), 3)}) {
      INFO(ranks << " ranks, " << program.name);
      const auto found =
          runProcesses(ranks, [&](Transport& transport) { return stepsOfRank(program, transport); });
      CHECK(fmt::format("{}", fmt::join(found, " ")) == stepsAsThreads(program));
    }
}

TEST_CASE("a rank that dies before a step ends the step of all others with an error that names it") {
  const std::string name = newJobName();
  Processes processes(3, [&](const Child& child) {
    return joinAndRun(
        {.name = name, .rank = child.rank(), .size = 3}, [&](Transport& transport) -> std::string {
          auto program = Program::fromTaskProgram(buildMoeProgram({.ranks = 3, .experts = 6}));
          if (!program) return program.error().message;
          LayerData data = makeLayerData(program->tables(), {.tokens = {.counts = {10, 20, 30}}});
          auto context = Context::create(*program, transport, {.threads = 1});
          if (!context) return context.error().message;
          if (Status bound = bindAll(data, transport.rank(), **context); !bound) return describe(bound);
          if (Status ran = (*context)->run("forward"); !ran) return describe(ran);
          if (child.rank() == 1) _exit(5);
          return describe((*context)->run("backward"));
        });
  });
  const auto ends = processes.wait(60);
  for (const int rank : {0, 2}) {
    CHECK_THAT(ends[rank].text,
               Catch::Matchers::Contains(fmt::format("rank 1 (process {}) has died", processes.pid(1))));
  }
}

}  // namespace
}  // namespace sluice

// More ranks than cores: results are right, and waiting threads do not keep a core busy.
#include <time.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "runtime/cpu/backoff.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using tools::InputsSpec;
using tools::RoutingKind;

uint64_t runHash(const Program& program, const InputsSpec& spec, const ContextOptions& options) {
  LayerData data = makeLayerData(program.tables(), spec);
  const Status ran = runLayer(program, options, data);
  INFO((ran ? "" : ran.error().message));
  REQUIRE(ran.ok());
  return hashOutputs(data);
}

TEST_CASE("sixteen ranks give the bits of the serial executor, whatever threads they have") {
  const auto program = Program::fromTaskProgram(buildMoeProgram(
      {.ranks = 16, .experts = 32, .topK = 4, .hidden = 40, .intermediate = 24, .maxTokens = 40}));
  REQUIRE(program.ok());
  for (const RoutingKind kind : {RoutingKind::kUniform, RoutingKind::kOneHot}) {
    const InputsSpec spec{.tokens = {.ragged = true, .most = 40}, .routing = {kind}, .seed = 9};
    const uint64_t oracle = runHash(*program, spec, {.executor = ExecutorKind::kSerial});
    for (const int threads : {1, 2}) CHECK(runHash(*program, spec, {.threads = threads}) == oracle);
  }
}

double threadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST_CASE("a thread that waits long takes next to no processor time") {
  Doorbell bell;
  Backoff backoff(bell, 30);
  const double begin = threadSeconds();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) REQUIRE(backoff.wait(bell.epoch(), 0));
  CHECK(threadSeconds() - begin < 0.02);
}

}  // namespace
}  // namespace sluice

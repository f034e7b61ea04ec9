// In steady state a step allocates nothing: counted by replacing operator new in this test's program.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace {
std::atomic<int64_t> allocations{0};
}

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace sluice {
namespace {

void checkSteps(const ContextOptions& options, Weights weights, int groupSlots = 0) {
  MoeShape shape{.ranks = 1, .experts = 8, .topK = 3};
  shape.groupSlots = groupSlots;
  auto program = Program::fromTaskProgram(buildMoeProgram(shape));
  REQUIRE(program.ok());
  LayerData data = makeLayerData(program->tables(), {.tokens = {.counts = {60}}});
  LocalRanks ranks(1);
  auto context = Context::create(*program, ranks.transport(0), options);
  REQUIRE(context.ok());
  REQUIRE(bindAll(data, 0, **context).ok());
  for (const char* name : {"gate_up_weight", "down_weight"})
    REQUIRE((*context)->bind(name, viewOf(data.inputs[0].at(name)), weights).ok());
  for (int step = 0; step < 4; ++step) {
    const int64_t before = allocations.load();
    const bool forward = (*context)->run("forward").ok();
    const bool backward = (*context)->run("backward").ok();
    const int64_t used = allocations.load() - before;
    REQUIRE(forward);
    REQUIRE(backward);
    if (step > 0) CHECK(used == 0);
  }
}

TEST_CASE("a step of a size seen before allocates nothing") {
  checkSteps({.threads = 2}, Weights::kOrdinary);
  checkSteps({.threads = 2}, Weights::kConstant);
  checkSteps({.threads = 2}, Weights::kConstant, 2);
}

}  // namespace
}  // namespace sluice

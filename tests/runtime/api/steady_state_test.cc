// In steady state a step allocates nothing: counted by replacing operator new in this test's program.
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "runtime/api/context.h"
#include "tests/proof/random_steps.h"
#include "tests/testing/exchange_program.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/spare_places.h"

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
    REQUIRE((*context)->bind(name, viewTensor(data.inputs[0].at(name)), weights).ok());
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

Status bindStep(RandomStep& step, int rank, Context& context) {
  for (auto* tensors : {&step.inputs[rank], &step.outputs[rank]})
    for (auto& [name, tensor] : *tensors)
      if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
  return {};
}

Status runEntries(const TaskProgram& program, Context& context) {
  for (const Entry& entry : program.entries)
    if (Status ran = context.run(entry.name); !ran) return ran;
  return {};
}

// The allocations of all ranks in steps of random sizes, after the same steps in another order.
int64_t allocationsOfSteps(const TaskProgram& tables) {
  const auto program = Program::fromTaskProgram(tables);
  REQUIRE(program.ok());
  std::vector<RandomStep> steps;
  for (uint64_t seed = 0; seed < 10; ++seed) steps.push_back(randomStep(tables, seed));
  std::barrier meeting(program->ranks());
  int64_t sum = 0;
  const auto body = [&](int rank, Context& context) {
    Status status;
    for (RandomStep& step : steps) {
      if (status) status = bindStep(step, rank, context);
      if (status) status = runEntries(tables, context);
    }
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      if (status) status = bindStep(*step, rank, context);
      meeting.arrive_and_wait();
      if (rank == 0) sum -= allocations.load();
      meeting.arrive_and_wait();
      if (status) status = runEntries(tables, context);
      meeting.arrive_and_wait();
      if (rank == 0) sum += allocations.load();
      meeting.arrive_and_wait();
    }
    return status;
  };
  for (const Status& ended : runRanks(*program, {.threads = 2, .pin = false}, body))
    CHECK((ended ? "" : ended.error().message) == "");
  return sum;
}

TEST_CASE("after the largest steps, growing and shrinking ones allocate nothing at any rank") {
  const MoeShape shape{.ranks = 2, .experts = 6, .topK = 2};
  for (const TaskProgram& program :
       {buildMoeProgram(shape), spareExperts(buildMoeProgram(shape), 2), buildExchangeProgram({.ranks = 3}),
        spareExperts(buildExchangeProgram({.isFloat = false}), 1)}) {
    INFO(program.name);
    CHECK(allocationsOfSteps(program) == 0);
  }
}

TEST_CASE("a step of a size seen before allocates nothing") {
  checkSteps({.threads = 2}, Weights::kOrdinary);
  checkSteps({.threads = 2}, Weights::kConstant);
  checkSteps({.threads = 2}, Weights::kConstant, 2);
}

}  // namespace
}  // namespace sluice

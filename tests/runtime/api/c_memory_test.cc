// Out of memory at every allocation of every kind of call: a status, and no exception, crash or leak.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <utility>

#include "tests/runtime/api/c_layer.h"

namespace {
// The allocations of this thread before one fails; below 0: none fails.
thread_local int64_t remaining = -1;

bool fails() { return remaining >= 0 && remaining-- == 0; }
}  // namespace

void* operator new(size_t bytes) {
  void* memory = fails() ? nullptr : std::malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace sluice {
namespace {

// Calls `call` with the n-th allocation failing, for every n up to the first with which it succeeds. `call`
// frees what it makes.
template <class Call>
int64_t failEverywhere(const Call& call) {
  for (int64_t n = 0; n < 100000; ++n) {
    remaining = n;
    const sluice_status status = call();
    const bool reached = remaining < 0;
    remaining = -1;
    if (!reached) {
      CHECK(status == SLUICE_OK);
      return n;
    }
    // a call that can do without the memory may succeed
    if (status != SLUICE_OK && status != SLUICE_ERROR_MEMORY)
      FAIL("allocation " << n << ": " << status << ", " << sluice_last_error());
    if (status == SLUICE_ERROR_MEMORY && sluice_last_error() != std::string("out of memory"))
      FAIL(sluice_last_error());
  }
  return -1;
}

TEST_CASE("a call that finds no memory says so") {
  const MoeShape shape{.experts = 2, .hidden = 16, .intermediate = 16, .maxTokens = 16, .cores = 1};
  const std::vector<std::byte> bytes = encode(buildMoeProgram(shape));
  CHECK(failEverywhere([&] {
          sluice_program* made = nullptr;
          const sluice_status status = sluice_program_from_memory(bytes.data(), bytes.size(), &made);
          sluice_program_free(made);
          return status;
        }) > 10);
  CHECK(failEverywhere([] {
          sluice_transport* made = nullptr;
          const sluice_status status = sluice_transport_alone(&made);
          sluice_transport_free(made);
          return status;
        }) > 1);

  const Handle<sluice_program> program = loadBytes(bytes);
  LayerData data = makeLayerData(buildMoeProgram(shape), {.tokens = {.counts = {8}}});
  sluice_context_options options{};
  options.size = sizeof options;
  options.executor = SLUICE_SERIAL;
  CHECK(failEverywhere([&] {
          sluice_transport* transport = nullptr;
          sluice_context* context = nullptr;
          const int64_t n = std::exchange(remaining, -1);  // the transport is not under test
          sluice_transport_alone(&transport);
          remaining = n;
          const sluice_status status = sluice_context_create(program.get(), transport, &options, &context);
          const int64_t left = std::exchange(remaining, -1);
          sluice_context_free(context);
          sluice_transport_free(transport);
          remaining = left;
          return status;
        }) > 10);

  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  const Handle<sluice_context> context = contextOf(program, alone);
  CHECK(failEverywhere([&] { return bindLayer(context.get(), data, 0); }) > 1);
}

TEST_CASE("a run that finds no memory is over at all ranks") {
  const MoeShape shape{.experts = 2, .hidden = 16, .intermediate = 16, .maxTokens = 16, .cores = 1};
  const Handle<sluice_program> program = loadLayer(shape);
  LayerData data = makeLayerData(buildMoeProgram(shape), {.tokens = {.counts = {8}}});
  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  const Handle<sluice_context> context = contextOf(program, alone);
  REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
  remaining = 0;
  const sluice_status status = sluice_context_run(context.get(), "forward", 0);
  remaining = -1;
  CHECK(status == SLUICE_ERROR_MEMORY);
  CHECK(sluice_context_error(context.get()) == std::string("out of memory"));
  CHECK(sluice_transport_is_aborted(alone.get()) == 1);
  CHECK(sluice_context_run(context.get(), "forward", 0) == SLUICE_ERROR_ABORTED);
}

TEST_CASE("a submitted step that finds no memory takes no turn: the next one runs") {
  const MoeShape shape{.experts = 2, .hidden = 16, .intermediate = 16, .maxTokens = 16, .cores = 1};
  const TaskProgram tables = buildMoeProgram(shape);
  LayerData data = makeLayerData(tables, {.tokens = {.counts = {8}}});
  LocalRanks alone(1);
  auto context = Context::create(*Program::fromTaskProgram(tables), alone.transport(0), {.threads = 1});
  REQUIRE(context.ok());
  REQUIRE(bindAll(data, 0, **context).ok());
  REQUIRE((*context)->submit("forward")->wait().ok());
  int64_t n = 0;
  for (bool submitted = false; !submitted; ++n) {
    remaining = n;
    try {
      auto step = (*context)->submit("forward");
      submitted = std::exchange(remaining, -1) >= 0;
      CHECK(step->wait().ok());
    } catch (const std::bad_alloc&) {
      remaining = -1;
    }
    REQUIRE((*context)->run("forward").ok());
  }
  CHECK(n > 3);
}

}  // namespace
}  // namespace sluice

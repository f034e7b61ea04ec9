// Runs of part of the work: they wait and end like runs of all of it, and omit the rest.
#include <atomic>
#include <catch2/catch.hpp>

#include "runtime/exec/step.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using tools::InputsSpec;
using tools::RoutingKind;

constexpr MoeShape kThreeRanks{
    .ranks = 3, .experts = 9, .topK = 2, .hidden = 40, .intermediate = 28, .maxTokens = 90, .cores = 3};

// True if every value of y is zero, or none was written.
bool isAll(const tools::Tensor& y, uint8_t byte) {
  const auto* data = reinterpret_cast<const uint8_t*>(y.data());
  return std::all_of(data, data + y.bytes(), [byte](uint8_t each) { return each == byte; });
}

TEST_CASE("runs of part of the work have all tasks and end, and leave the next run of all of it right") {
  const Program program = programOf(buildMoeProgram(kThreeRanks));
  for (const RoutingKind kind : {RoutingKind::kZipf, RoutingKind::kOneHot, RoutingKind::kMasked})
    for (const ExecutorKind executor : {ExecutorKind::kParallel, ExecutorKind::kSerial}) {
      const InputsSpec spec{.tokens = {.counts = {90, 0, 31}}, .routing = {kind, 1.3}, .seed = 3};
      const ContextOptions options{.threads = 2, .executor = executor};
      LayerData expected = makeLayerData(program.tables(), spec);
      REQUIRE(runLayer(program, options, expected).ok());
      LayerData data = makeLayerData(program.tables(), spec);
      std::atomic<int> unequal{0};
      const auto body = [&](int rank, Context& context) -> Status {
        if (Status bound = bindAll(data, rank, context); !bound) return bound;
        int64_t tasks[2] = {-1, -1};
        for (WorkKind work : {WorkKind::kCompute, WorkKind::kAll, WorkKind::kCommunication,
                              WorkKind::kCompute, WorkKind::kAll}) {
          context.setWork(work);
          for (int entry = 0; entry < 2; ++entry) {
            if (Status ran = context.run(entry == 0 ? "forward" : "backward"); !ran) return ran;
            unequal += tasks[entry] >= 0 && context.lastRun().tasks != tasks[entry];
            tasks[entry] = context.lastRun().tasks;
          }
        }
        return {};
      };
      for (const Status& ran : runRanks(program, options, body)) {
        INFO((ran ? "" : ran.error().message));
        REQUIRE(ran.ok());
      }
      CHECK(unequal == 0);
      CHECK(hashOutputs(data) == hashOutputs(expected));
    }
}

TEST_CASE("communication alone computes nothing, and computation alone copies no rows to any rank") {
  const Program program = programOf(buildMoeProgram(kThreeRanks));
  const InputsSpec spec{.tokens = {.counts = {90, 12, 31}}, .routing = {RoutingKind::kUniform}, .seed = 3};
  LayerData data = makeLayerData(program.tables(), spec);
  REQUIRE(runLayer(program, {.threads = 2, .work = WorkKind::kCommunication}, data, {"forward"}).ok());
  for (const auto& outputs : data.outputs) CHECK(isAll(outputs.at("y"), 0xa5));
  // memory is zero at first, so without rows the layer gives zeros
  REQUIRE(runLayer(program, {.threads = 2, .work = WorkKind::kCompute}, data, {"forward"}).ok());
  for (const auto& outputs : data.outputs) CHECK(isAll(outputs.at("y"), 0));
}

TEST_CASE("the traffic of a step is what its tokens send to experts of other ranks, and what comes back") {
  const Program program = programOf(buildMoeProgram(kThreeRanks));
  const InputsSpec spec{.tokens = {.counts = {90, 12, 31}}, .routing = {RoutingKind::kZipf, 1.3}, .seed = 3};
  LayerData data = makeLayerData(program.tables(), spec);
  int64_t away = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const tools::Tensor& ids = data.inputs[rank].at("expert_ids");
    for (int64_t i = 0; i < ids.elements(); ++i) away += ids.as<int32_t>()[i] / 3 != rank;
  }
  Traffic forward[3], backward[3];
  const auto body = [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    if (context.traffic().bytes != 0) return Error{"traffic before the first run"};
    if (Status ran = context.run("forward"); !ran) return ran;
    forward[rank] = context.traffic();
    if (Status ran = context.run("backward"); !ran) return ran;
    backward[rank] = context.traffic();
    return {};
  };
  for (const Status& ran : runRanks(program, {.threads = 1}, body)) REQUIRE(ran.ok());
  int64_t bytes[2] = {0, 0}, pieces = 0, signals = 0;
  for (int rank = 0; rank < 3; ++rank) {
    bytes[0] += forward[rank].bytes;
    bytes[1] += backward[rank].bytes;
    pieces += forward[rank].pieces;
    signals += forward[rank].signals;
  }
  CHECK(bytes[0] == away * 2 * (2 * 40));      // rows of bf16, there and back
  CHECK(bytes[1] == away * 2 * (2 * 40 + 4));  // with a weight there, and its gradient back
  CHECK(pieces > 0);
  CHECK(signals == 2 * pieces);  // the event and the arrival
}

TEST_CASE("one rank sends nothing to others") {
  const Program program = programOf(buildMoeProgram({.ranks = 1}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20}}});
  Traffic traffic{1, 1, 1};
  const auto body = [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    const Status ran = context.run("forward");
    traffic = context.traffic();
    return ran;
  };
  REQUIRE(runRanks(program, {.threads = 1}, body).front().ok());
  CHECK(traffic.pieces == 0);
  CHECK(traffic.bytes == 0);
  CHECK(traffic.signals == 0);
}

}  // namespace
}  // namespace sluice

// From the graph files to checked outputs: compile, write, load, run, compare with double precision.
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "compiler/api/compile.h"
#include "runtime/program/codec.h"
#include "tests/testing/layer_run.h"

namespace sluice {
namespace {

constexpr double kTolerance = 1.2e-2;

struct Sizes {
  int ep, experts, topK, hidden, intermediate, maxTokens, cores, slotRows, tile;
};

Program compileProgram(const std::string& graph, const Sizes& s) {
  auto target = loadTarget("targets/cpu.json", {});
  if (!target) FAIL(target.error().message);
  const CompileOptions options{.sets = {{"ep", s.ep},
                                        {"experts", s.experts},
                                        {"top_k", s.topK},
                                        {"hidden", s.hidden},
                                        {"intermediate", s.intermediate},
                                        {"max_tokens", s.maxTokens}},
                               .cores = s.cores,
                               .slotRows = s.slotRows,
                               .tile = s.tile};
  auto tables = compile("graphs/moe_ffn/" + graph, *target, options);
  if (!tables) FAIL(tables.error().message);
  auto program = Program::fromBytes(encode(*tables));
  if (!program) FAIL(program.error().message);
  return std::move(*program);
}

void checkErrors(const LayerData& data) {
  const auto errors = errorsOf(data);
  REQUIRE(errors.size() == 5);
  for (const tools::OutputError& error : errors) {
    INFO(error.name);
    CHECK(error.relative <= kTolerance);
  }
}

void requireOk(const Status& status) {
  INFO((status ? "" : status.error().message));
  REQUIRE(status.ok());
}

TEST_CASE("train.json compiles for any sizes and computes the layer and its gradients") {
  std::mt19937 random(44);
  const auto pick = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  for (int trial = 0; trial < 12; ++trial) {
    Sizes s{};
    s.ep = pick(1, 4);
    s.experts = s.ep * pick(1, 8);
    s.topK = pick(1, std::min(8, s.experts));
    s.hidden = pick(1, 200);
    s.intermediate = pick(1, 150);
    s.maxTokens = pick(12, 300);
    s.cores = pick(0, 5);
    s.slotRows = trial % 2 == 0 ? 0 : 16 * pick(1, 4);
    s.tile = trial % 3 == 0 ? 0 : 16 * pick(1, 5);
    const Program program = compileProgram("train.json", s);
    LayerData data = makeLayerData(
        program.tables(),
        {.tokens = {.ragged = true, .most = s.maxTokens},
         .routing = {trial % 2 ? tools::RoutingKind::kZipf : tools::RoutingKind::kHalfEmpty, 1.2},
         .seed = random()});
    requireOk(runLayer(program, {.threads = 2}, data));
    checkErrors(data);
  }
}

// What forward.json saves are tensors of extent rows, which backward.json takes as inputs.
TEST_CASE("forward.json and backward.json, compiled apart, agree with train.json bit for bit") {
  const Sizes s{2, 6, 2, 72, 40, 100, 3, 16, 32};
  const Program train = compileProgram("train.json", s);
  const Program forward = compileProgram("forward.json", s);
  const Program backward = compileProgram("backward.json", s);
  const tools::InputsSpec spec{
      .tokens = {.counts = {100, 37}}, .routing = {tools::RoutingKind::kZipf, 1.2}, .seed = 3};
  LayerData expected = makeLayerData(train.tables(), spec), found = makeLayerData(train.tables(), spec);
  requireOk(runLayer(train, {.threads = 2}, expected));

  // binds what the program has of the layer's tensors
  const auto bindKnown = [&](int rank, Context& context, const Program& program) -> Status {
    for (auto* tensors : {&found.inputs[rank], &found.outputs[rank]})
      for (auto& [name, tensor] : *tensors)
        for (const Buffer& buffer : program.tables().buffers)
          if (buffer.name == name)
            if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
    return {};
  };
  LocalRanks forwardRanks(2), backwardRanks(2);
  std::vector<Status> results(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      results[rank] = [&]() -> Status {
        auto first = Context::create(forward, forwardRanks.transport(rank), {.threads = 2});
        if (!first) return first.error();
        if (Status bound = bindKnown(rank, **first, forward); !bound) return bound;
        if (Status ran = (*first)->run("forward"); !ran) return ran;
        auto second = Context::create(backward, backwardRanks.transport(rank), {.threads = 2});
        if (!second) return second.error();
        if (Status bound = bindKnown(rank, **second, backward); !bound) return bound;
        for (const char* name : {"rows_x", "gate_up", "act"}) {
          auto saved = (*first)->output(name);
          if (!saved) return saved.error();
          if (Status bound = (*second)->bind(name, *saved); !bound) return bound;
        }
        return (*second)->run("backward");
      }();
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) requireOk(result);
  CHECK(hashOutputs(found) == hashOutputs(expected));
  checkErrors(found);
}

TEST_CASE(
    "a saved tensor with the wrong number of rows is refused with both numbers, and the next step runs") {
  const Program backward = compileProgram("backward.json", {1, 4, 2, 16, 16, 20, 2, 16, 16});
  const Program train = compileProgram("train.json", {1, 4, 2, 16, 16, 20, 2, 16, 16});
  LayerData data = makeLayerData(train.tables(), {.tokens = {.counts = {20}}});
  LocalRanks ranks(1);
  auto context = Context::create(backward, ranks.transport(0), {});
  REQUIRE(context.ok());
  for (auto* tensors : {&data.inputs[0], &data.outputs[0]})
    for (auto& [name, tensor] : *tensors)
      for (const Buffer& buffer : backward.tables().buffers)
        if (buffer.name == name) requireOk((*context)->bind(name, viewTensor(tensor)));
  const auto runWith = [&](int64_t rows, int64_t otherRows) -> std::string {
    tools::Tensor rowsX(DType::kBF16, {rows, 16}), gateUp(DType::kBF16, {otherRows, 32}),
        act(DType::kBF16, {otherRows, 16});
    requireOk((*context)->bind("rows_x", viewTensor(rowsX)));
    requireOk((*context)->bind("gate_up", viewTensor(gateUp)));
    requireOk((*context)->bind("act", viewTensor(act)));
    const Status ran = (*context)->run("backward");
    return ran ? "" : ran.error().message;
  };
  CHECK(runWith(39, 40) == "rank 0: tensor 'rows_x' has 39 rows, but 'gate_up' has 40");
  CHECK(runWith(39, 39) == "rank 0: tensor 'act' has 39 rows, but this routing gives the rank 40");
  CHECK(runWith(40, 40) == "");
}

}  // namespace
}  // namespace sluice

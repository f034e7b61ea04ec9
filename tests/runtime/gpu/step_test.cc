// Steps on the hardware model of a GPU: the program of the CPU, as partitions of one launch.
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "runtime/gpu/edited_backend.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/program/op_table.h"
#include "tests/runtime/gpu/model_group.h"
#include "tests/testing/small_layer.h"
#include "tests/testing/wide_program.h"

namespace sluice {
namespace {

ContextOptions on(ModelGroup& group) { return {.timeoutSeconds = 60, .device = devicesOn(group.backends())}; }

void checkErrors(const Program& program, const Sample& sample, const LayerData& after, double tolerance) {
  const LayerData before = dataFor(program, sample);
  for (const auto& [name, error] : errorsOfProgram(program.verified(), before, after, kBoth, true)) {
    INFO(name);
    CHECK(error <= tolerance);
  }
}

TEST_CASE(
    "a layer and its gradients on 1 and 3 ranks are right, with the same bits for any number of blocks") {
  for (const int ranks : {1, 3})  // tests/layer:gpu_graphs_test has 2
    for (const bool fused : {true, false}) {
      MoeShape shape = smallShape(ranks);
      shape.fused = fused;
      const Program program = programOf(buildMoeProgram(shape));
      for (const Sample& sample : samplesOf(ranks)) {
        if (sample.seed % 2 != static_cast<uint32_t>(fused)) continue;  // each in one form
        INFO(ranks << " ranks, fused " << fused << ", sample " << sample.seed);
        ModelGroup alone(ranks, {.blocks = 1, .seed = sample.seed});
        const LayerData one = runOn(program, sample, on(alone));
        checkErrors(program, sample, one, 1.2e-2);
        ModelGroup many(
            ranks,
            {.blocks = 3, .columns = fused ? 128 : 256, .seed = sample.seed + 100, .hasOwnMemory = true});
        CHECK(hashOutputs(runOn(program, sample, on(many))) == hashOutputs(one));
      }
    }
}

TEST_CASE("a rank that gathers its rows and sums them in place gives the bits of one that copies them") {
  for (const bool fused : {true, false}) {
    MoeShape shape = smallShape(1);
    shape.fused = fused;
    shape.groupSlots = fused ? 0 : 2;
    const Program copying = programOf(buildMoeProgram(shape));
    shape.inPlace = true;
    const Program inPlace = programOf(buildMoeProgram(shape));
    const Sample sample = samplesOf(1)[fused ? 0 : 1];
    INFO("fused " << fused << ", sample " << sample.seed);
    ModelGroup one(1, {.blocks = 2, .seed = 5}), other(1, {.blocks = 3, .seed = 6, .hasOwnMemory = true});
    const LayerData copied = runOn(copying, sample, on(one)), read = runOn(inPlace, sample, on(other));
    CHECK(hashOutputs(read) == hashOutputs(copied));
    checkErrors(inPlace, sample, read, 1.2e-2);
  }
}

// The tensors of the caller that tasks of an entry read, or add to.
std::set<uint32_t> tensorsReadBy(const TaskProgram& program, uint32_t entry) {
  std::set<uint32_t> read;
  for (const Family& family : program.families) {
    if (family.entry.value != entry) continue;
    for (const BufferId id : family.reads)
      if (id && !program.at(id).region) read.insert(id.value);
    for (const BufferId id : family.writes)
      if (id && !program.at(id).region && isAccumulated(program, id)) read.insert(id.value);
  }
  return read;
}

TEST_CASE("a tensor that several families read is copied once a step, and a constant one once") {
  MoeShape shape = smallShape(1);
  shape.fused = true;
  const Program program = programOf(buildWideProgram({shape}));
  const TaskProgram& tables = program.tables();
  ModelGroup group(1, {.blocks = 2, .hasOwnMemory = true});
  LayerData data = dataFor(program, samplesOf(1).front());
  const BufferId constant = findBuffer(tables.families[1], &Operands::b);  // of the first product
  const std::string& weight = tables.at(constant).name;
  std::vector<int64_t> copies;
  const auto statuses = runRanks(program, on(group), [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    if (Status bound = context.bind(weight, viewTensor(data.inputs[0].at(weight)), Weights::kConstant);
        !bound)
      return bound;
    for (const char* entry : {"forward", "backward", "forward"}) {
      const int64_t before = group.copiesIn;
      if (Status ran = context.run(entry); !ran) return ran;
      copies.push_back(group.copiesIn - before);
    }
    return {};
  });
  REQUIRE(statuses.front().ok());
  const auto forward = tensorsReadBy(tables, 0), backward = tensorsReadBy(tables, 1);
  REQUIRE(forward.contains(constant.value));
  constexpr int64_t kTables = 2;  // of the routing
  CHECK(copies[0] == kTables + std::ssize(forward));
  CHECK(copies[1] == kTables + std::ssize(backward) - (backward.contains(constant.value) ? 1 : 0));
  CHECK(copies[2] == kTables + std::ssize(forward) - 1);
}

TEST_CASE("dense, scaled and adapted families, biases and row weights run on the model, too") {
  for (const bool fused : {true, false}) {
    MoeShape shape = smallShape(2);
    shape.fused = fused;
    const Program program = programOf(buildWideProgram({shape}));
    const Sample sample = samplesOf(2).front();
    ModelGroup group(2, {.blocks = 2});
    checkErrors(program, sample, runOn(program, sample, on(group)), 1.5e-2);
  }
}

TEST_CASE(
    "a weight gradient that scales its rows, as programs before format 1.11 have it, is refused by name") {
  MoeShape shape = smallShape(1);
  shape.weightsAct = false;
  ModelGroup group(1, {});
  const auto statuses = runRanks(programOf(buildMoeProgram(shape)), on(group),
                                 [](int, Context&) -> Status { return Error{"it was loaded"}; });
  REQUIRE(!statuses.front());
  CHECK(statuses.front().error().message ==
        "family 'down_weight_grad' cannot run on a GPU: it scales the rows that it multiplies; compile the "
        "program "
        "again, so that others do");
}

TEST_CASE("a signal that is lost ends in the report of the CPU, and the context is of no use afterwards") {
  const Program program = programOf(buildMoeProgram(smallShape(2)));
  ModelGroup group(2, {.blocks = 2});
  ContextOptions options = on(group);
  options.device = devicesOn(editedBackends(group.backends(), [](StepTables& tables) {
    if (tables.rank == 0) loseSignal(tables);
  }));
  LayerData data = dataFor(program, samplesOf(2).front());
  const auto statuses = runRanks(program, options, [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    const Status first = context.run("forward");
    if (first) return Error{"it ran"};
    return context.run("forward").ok() ? Error{"it ran again"} : first;
  });
  for (const Status& status : statuses) {
    REQUIRE(!status);
    INFO(status.error().message);
    CHECK(status.error().message.find("rank 0, core ") != std::string::npos);
    CHECK(status.error().message.find("waited 60 s for event ") != std::string::npos);
    CHECK(status.error().message.find("missing: ") != std::string::npos);
  }
}

}  // namespace
}  // namespace sluice

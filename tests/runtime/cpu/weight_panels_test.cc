// Packed weights: the same bits with them as without, for any promise, limit and number of threads; and when
// a panel is packed, shared and packed anew.
#include "runtime/cpu/weight_panels.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tests/testing/program_builder.h"
#include "tests/testing/small_layer.h"
#include "tests/testing/wide_program.h"

namespace sluice {
namespace {

// Slots of more than the 16 rows that are multiplied without packing, and several of them for some experts.
MoeShape shapeOf(int ranks, bool fused) {
  MoeShape shape = smallShape(ranks);
  shape.slotRows = 32;
  shape.tokenSlot = 24;
  shape.fused = fused;
  return shape;
}

Status bindAs(LayerData& data, int rank, Context& context, Weights weights) {
  for (auto& [name, tensor] : data.inputs[rank])
    if (Status bound = context.bind(name, viewTensor(tensor), weights); !bound) return bound;
  for (auto& [name, tensor] : data.outputs[rank])
    if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
  return {};
}

// Three steps of forward and backward; what rank 0 had packed after them.
PackedWeights runSteps(const Program& program, LayerData& data, const ContextOptions& options,
                       Weights weights) {
  PackedWeights packed;
  const auto results = runRanks(program, options, [&](int rank, Context& context) -> Status {
    if (Status bound = bindAs(data, rank, context, weights); !bound) return bound;
    for (int step = 0; step < 3; ++step)
      for (const char* entry : {"forward", "backward"})
        if (Status ran = context.run(entry); !ran) return ran;
    if (rank == 0) packed = context.packedWeights();
    return {};
  });
  for (const Status& result : results)
    if (!result) FAIL(result.error().message);
  return packed;
}

TEST_CASE("constant, ordinary and unpacked weights give the same bits for any number of threads") {
  for (const int ranks : {1, 2})
    for (const bool fused : {false, true}) {
      const Program plain = programOf(buildMoeProgram(shapeOf(ranks, fused)));
      const Program wide = programOf(buildWideProgram({shapeOf(ranks, fused)}));
      MoeShape inGroups = shapeOf(ranks, fused);
      inGroups.slotRows = 16;
      inGroups.groupSlots = 2;
      const Program grouped = programOf(buildMoeProgram(inGroups));
      for (const Program* program : {&plain, &wide, &grouped}) {
        const auto hashContent = [&](const ContextOptions& options, Weights weights, PackedWeights& packed) {
          LayerData data = makeProgramData(program->tables(), {90, 71}, DataRouting::kFewExperts, 4);
          packed = runSteps(*program, data, options, weights);
          return hashOutputs(data);
        };
        PackedWeights none, packed;
        const uint64_t oracle =
            hashContent({.executor = ExecutorKind::kSerial, .packedBytes = 0}, Weights::kOrdinary, none);
        CHECK(none.bytes == 0);
        for (const int threads : {1, 3, 5}) {
          INFO(ranks << " ranks, " << threads << " threads" << (fused ? ", fused" : ""));
          CHECK(hashContent({.threads = threads}, Weights::kOrdinary, packed) == oracle);
          CHECK(packed.bytes == 0);
          CHECK(hashContent({.threads = threads}, Weights::kConstant, packed) == oracle);
          CHECK(packed.panels > 0);
        }
      }
    }
}

TEST_CASE("constant weights give the bits of ordinary ones on every instruction set") {
  const Program program = programOf(buildMoeProgram(shapeOf(1, true)));
  for (const ops::Isa isa : ops::supportedIsas()) {
    INFO(ops::isaName(isa));
    setenv("SLUICE_ISA", std::string(ops::isaName(isa)).c_str(), 1);
    uint64_t hashes[2];
    for (const Weights weights : {Weights::kOrdinary, Weights::kConstant}) {
      LayerData data = makeProgramData(program.tables(), {90}, DataRouting::kUniform, 4);
      runSteps(program, data, {.threads = 2}, weights);
      hashes[weights == Weights::kConstant] = hashOutputs(data);
    }
    unsetenv("SLUICE_ISA");
    CHECK(hashes[0] == hashes[1]);
  }
}

TEST_CASE("packed weights keep the limit, and give the same bits where some have no room") {
  const Program program = programOf(buildMoeProgram(shapeOf(1, false)));
  LayerData data = makeProgramData(program.tables(), {90}, DataRouting::kUniform, 4);
  const PackedWeights all = runSteps(program, data, {.threads = 3}, Weights::kConstant);
  const uint64_t oracle = hashOutputs(data);
  CHECK(all.withoutRoom == 0);
  for (const int64_t limit : {int64_t{1}, all.bytes / 2, all.bytes - 1, all.bytes}) {
    const PackedWeights some =
        runSteps(program, data, {.threads = 3, .packedBytes = limit}, Weights::kConstant);
    CHECK(hashOutputs(data) == oracle);
    CHECK(some.bytes <= limit);
    CHECK(some.panels + some.withoutRoom == all.panels);
    CHECK((some.withoutRoom > 0) == (limit < all.bytes));
  }
}

TEST_CASE("a limit below nothing is an error") {
  const Program program = programOf(buildMoeProgram({}));
  LocalRanks ranks(1);
  const auto context = Context::create(program, ranks.transport(0), {.packedBytes = -1});
  REQUIRE_FALSE(context.ok());
  CHECK(context.error().message == "-1 bytes of packed weights, expected 0 or more");
}

// One rank of `forward`, step by step, with a weight that the test changes.
struct Steps {
  Program program;
  LayerData data;
  LocalRanks ranks{1};
  std::unique_ptr<Context> context;

  Steps(const ContextOptions& options, Weights weights)
      : program(programOf(buildMoeProgram(shapeOf(1, false)))),
        data(makeProgramData(program.tables(), {90}, DataRouting::kUniform, 4)),
        context(std::move(*Context::create(program, ranks.transport(0), options))) {
    REQUIRE(bindAs(data, 0, *context, weights).ok());
  }

  tools::Tensor& weight() { return data.inputs[0].at("down_weight"); }
  void changeWeight() {
    for (int64_t i = 0; i < weight().elements(); ++i) weight().as<BFloat16>()[i].bits ^= 0x8000;
  }
  uint64_t forward() {
    REQUIRE(context->run("forward").ok());
    return hashOutputs(data);
  }
};

TEST_CASE("what an ordinary weight changes to between steps is seen") {
  Steps steps({.threads = 2}, Weights::kOrdinary);
  const uint64_t first = steps.forward();
  steps.changeWeight();
  const uint64_t second = steps.forward();
  CHECK(second != first);
  steps.changeWeight();
  CHECK(steps.forward() == first);
}

TEST_CASE("a constant weight is read again only when it is bound again") {
  Steps steps({.threads = 2}, Weights::kConstant);
  const uint64_t first = steps.forward();
  const int64_t bytes = steps.context->packedWeights().bytes;
  steps.changeWeight();
  CHECK(steps.forward() == first);
  REQUIRE(steps.context->bind("down_weight", viewTensor(steps.weight()), Weights::kConstant).ok());
  const uint64_t second = steps.forward();
  CHECK(second != first);
  steps.changeWeight();
  REQUIRE(steps.context->bind("down_weight", viewTensor(steps.weight())).ok());
  CHECK(steps.forward() == first);
  steps.changeWeight();
  CHECK(steps.forward() == second);
  CHECK(steps.context->packedWeights().bytes == bytes);
}

struct Panels {
  Plan plan;
  WeightPanels panels;
  FamilyId family;
  std::vector<BoundTensor> bound;  // by buffer

  explicit Panels(int64_t limit = std::numeric_limits<int64_t>::max())
      : plan(Plan::make(*verify(buildMoeProgram(shapeOf(1, false))))),
        panels(plan, **ops::selectKernels(), limit),
        bound(plan.program().buffers.size()) {
    family = FamilyId{0};
    while (plan.program().at(family).op != OpKind::kGmm) ++family.value;
  }
  void bindConstant() {
    BoundTensor& weight = bound[plan.at(family).operands.b.value];
    ++weight.version;
    weight.constant = true;
    panels.bind(bound);
  }
  WeightPanels::Panel claim(int32_t expert, int32_t tile) { return panels.claim(family, expert, tile, 1000); }
};

TEST_CASE("one task packs a panel, others do not wait for it, and later ones find it") {
  Panels p;
  p.bindConstant();
  REQUIRE(p.panels.beginStep().ok());
  const auto mine = p.claim(1, 0);
  REQUIRE(mine.data != nullptr);
  CHECK(mine.toPack);
  CHECK(p.claim(1, 0).data == nullptr);
  const auto other = p.claim(1, 1);
  CHECK(other.data != mine.data);
  CHECK(p.claim(0, 0).data != nullptr);
  WeightPanels::publish(mine);
  for (int step = 0; step < 2; ++step) {
    const auto found = p.claim(1, 0);
    CHECK(found.data == mine.data);
    CHECK_FALSE(found.toPack);
    REQUIRE(p.panels.beginStep().ok());
  }
  CHECK(p.panels.packed().panels == 1);
  p.bindConstant();
  REQUIRE(p.panels.beginStep().ok());
  const auto again = p.claim(1, 0);
  CHECK(again.toPack);
  CHECK(again.data == mine.data);
}

TEST_CASE("nothing is packed where nobody asks for it") {
  Panels p;
  REQUIRE(p.panels.beginStep().ok());
  CHECK_FALSE(p.panels.active());
  CHECK(p.claim(0, 0).data == nullptr);
  Panels none(0);
  none.bindConstant();
  REQUIRE(none.panels.beginStep().ok());
  CHECK_FALSE(none.panels.active());
}

// Two entries that read one weight: alike, and in tiles of other lengths.
TEST_CASE("families that cut a weight alike share its panels") {
  const auto programOfTiles = [](int32_t tileN) {
    ProgramBuilder b;
    b.program.maxTokens = 40;
    const SpaceId tokens = b.space("tokens", SpaceKind::kTokens, 16, 2);
    const BufferId ids = b.buffer("expert_ids", DType::kI32, {kDimT, fixedDim(1)}, Role::kInput);
    const BufferId x = b.buffer("x", DType::kBF16, {kDimT, fixedDim(24)}, Role::kInput);
    const BufferId weight = b.buffer("weight", DType::kBF16, {fixedDim(24), fixedDim(8)}, Role::kInput);
    for (const char* name : {"first", "second"}) {
      const bool first = name == std::string("first");
      const int32_t tile = first ? 4 : tileN;
      b.beginEntry(name, first ? ids : BufferId{}, first ? EntryId{} : EntryId{0});
      b.family({.name = "product",
                .op = OpKind::kGmm,
                .space = tokens,
                .tiles = 8 / tile,
                .tiling = {.n = 8, .k = 24, .tileN = tile},
                .reads = {x, weight},
                .writes = {b.buffer(first ? "y" : "z", DType::kBF16, {kDimT, fixedDim(8)}, Role::kOutput)},
                .waits = {},
                .signals = {},
                .priority = 0});
    }
    return b.program;
  };
  for (const int32_t tileN : {4, 8}) {
    auto verified = verify(programOfTiles(tileN));
    if (!verified) FAIL(verified.error().message);
    const Plan plan = Plan::make(std::move(*verified));
    WeightPanels panels(plan, **ops::selectKernels(), std::numeric_limits<int64_t>::max());
    std::vector<BoundTensor> bound(plan.program().buffers.size());
    bound[plan.at(FamilyId{0}).operands.b.value] = {.version = 1, .constant = true};
    panels.bind(bound);
    REQUIRE(panels.beginStep().ok());
    const auto first = panels.claim(FamilyId{0}, 0, 0, 1000);
    REQUIRE(first.toPack);
    WeightPanels::publish(first);
    CHECK((panels.claim(FamilyId{1}, 0, 0, 1000).data == first.data) == (tileN == 4));
  }
}

}  // namespace
}  // namespace sluice

#include "compiler/emit/emit.h"

#include <catch2/catch.hpp>

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

namespace sluice {
namespace {

// Two entries with equal names, a lane of two families, an empty seat.
constexpr const char* kProgram = R"(
task.program "p" ranks = 2 experts = 4 top_k = 3 max_tokens = 64 cores = 0 cube = 3 vector = 2 target "cpu" options "--set a=1"
    graph_hash = -1 symbols {a = 1 : i64, b = 2 : i64} {
  task.space rows "rows" slot = 16 window = 2
  task.space tokens "tokens" slot = 8 window = 1
  task.region "r" R stride = 128 symmetric saved
  task.buffer input "ids" : [T, 3] i32 alias "expert ids"
  task.buffer saved "a" : [R, 48] bf16 in "r"
  task.buffer output "b" : [P, 2, 3] f32
  task.entry "first" ids "ids" {
    task.event "e" space one counts rows until valid_pairs(0) remote
    task.event "f" space experts counts tasks until slots_of_expert(5)
    task.family gmm "x" on "rows" tiles = 2 <n = 48, k = 32, tile_n = 24, flags = 1> core unified
        reads ["a", ""] writes ["b"] signals ["f"] alias "other" loc("g.json":4:7)
    task.family combine_sum "y" on "rows" tiles = 1 <m = 1, n = 2, k = 3, tile_m = 4> core vector
        reads [] writes [] waits ["e", "f"]
  }
  task.entry "second" routing "first" {
    task.event "e" space rows counts tasks until constant(3)
    task.family gmm "x" on "rows" tiles = 1 <n = 48> core cube reads ["a"] writes ["b"] waits ["e"]
    task.family gmm "z" on "rows" tiles = 1 <n = 48> core cube reads ["a"] writes ["b"] signals ["e"]
    task.lane "l" on "rows" core cube from 1 runs ["z", "x"] priority = 4 rotation = 1
        seats [array<i32: 1, 0, 0, 0, 1, 0>, array<i32>]
  }
}
)";

TaskProgram parse(const char* text) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<task::TaskDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(&context));
  REQUIRE(module);
  return emitProgram(*module->getOps<task::ProgramOp>().begin());
}

TEST_CASE("the header of the program is that of the IR") {
  const TaskProgram program = parse(kProgram);
  CHECK(program.name == "p");
  CHECK(program.target == "cpu");
  CHECK(program.options == "--set a=1");
  CHECK(program.graphHash == ~uint64_t{0});
  CHECK(program.symbols == std::vector<Symbol>{{"a", 1}, {"b", 2}});
  CHECK(program.ranks == 2);
  CHECK(program.experts == 4);
  CHECK(program.topK == 3);
  CHECK(program.maxTokens == 64);
  CHECK(program.cores == 0);
  CHECK(program.cubeCores == 3);
  CHECK(program.vectorCores == 2);
}

TEST_CASE("memory and spaces keep their order and refer to each other by id") {
  const TaskProgram program = parse(kProgram);
  CHECK(program.spaces[0] == Space{"rows", SpaceKind::kRows, 16, 2});
  CHECK(program.spaces[1] == Space{"tokens", SpaceKind::kTokens, 8, 1});
  CHECK(program.regions == std::vector<Region>{{"r", Extent::kRows, 128, true, true}});
  const Dim rows{Extent::kRows, 0}, tokens{Extent::kTokens, 0}, pairs{Extent::kPairs, 0};
  CHECK(program.buffers[0] ==
        Buffer{"ids", "expert ids", DType::kI32, {tokens, {Extent::kFixed, 3}}, Role::kInput, {}});
  CHECK(program.buffers[1] ==
        Buffer{"a", "", DType::kBF16, {rows, {Extent::kFixed, 48}}, Role::kSaved, RegionId{0}});
  CHECK(program.buffers[2] ==
        Buffer{"b", "", DType::kF32, {pairs, {Extent::kFixed, 2}, {Extent::kFixed, 3}}, Role::kOutput, {}});
}

TEST_CASE("equal names of two entries lead to the records of their own entry") {
  const TaskProgram program = parse(kProgram);
  CHECK(program.entries == std::vector<Entry>{{"first", BufferId{0}, {}}, {"second", {}, EntryId{0}}});
  CHECK(program.events[1] == EventArray{"f", EntryId{0}, EventSpace::kExperts, EventUnit::kTasks,
                                        ThresholdRule::kSlotsOfExpert, 5, false});
  CHECK(program.events[2] == EventArray{"e", EntryId{1}, EventSpace::kRows, EventUnit::kTasks,
                                        ThresholdRule::kConstant, 3, false});
  using Events = std::vector<EventId>;
  const std::pair<Events, Events> expected[] = {
      {{}, {EventId{1}}}, {{EventId{0}, EventId{1}}, {}}, {{EventId{2}}, {}}, {{}, {EventId{2}}}};
  for (size_t f = 0; f < 4; ++f)
    CHECK(std::pair(program.families[f].waits, program.families[f].signals) == expected[f]);
}

TEST_CASE("families carry their tiling, operands by position and source") {
  const TaskProgram program = parse(kProgram);
  const Family& family = program.families[0];
  CHECK(family.source == "g.json:4:7");
  CHECK(family.alias == "other");
  CHECK(family.tiles == 2);
  CHECK(family.tiling == Tiling{0, 48, 32, 0, 24, 1, 0});
  CHECK(family.reads == std::vector<BufferId>{BufferId{1}, BufferId{}});
  CHECK(family.writes == std::vector<BufferId>{BufferId{2}});
  CHECK(program.families[1].tiling == Tiling{1, 2, 3, 4, 0, 0, 0});
  CHECK(program.families[1].core == CoreKind::kVector);
  CHECK(program.families[2].entry == EntryId{1});
}

TEST_CASE("a lane has the tasks of its families, by core") {
  const TaskProgram program = parse(kProgram);
  REQUIRE(program.lanes.size() == 1);
  const Lane& lane = program.lanes[0];
  CHECK(lane.entry == EntryId{1});
  CHECK(lane.priority == 4);
  CHECK(lane.rotation == 1);
  CHECK(lane.core == CoreKind::kCube);
  CHECK(lane.firstCore == 1);
  REQUIRE(lane.seats.size() == 2);
  CHECK(lane.seats[1].empty());
  CHECK(lane.seats[0] == std::vector<TaskRecord>{{FamilyId{2}, 0, 0}, {FamilyId{3}, 1, 0}});
}

}  // namespace
}  // namespace sluice

#include "compiler/api/compile.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <set>

#include "tests/testing/moe_program.h"
#include "tests/testing/small_target.h"
#include "tests/testing/test_files.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kTrain = "graphs/moe_ffn/train.json";

CompileOptions setsFor(const MoeShape& shape) {
  CompileOptions options;
  options.sets = {
      {"ep", shape.ranks},      {"experts", shape.experts},           {"top_k", shape.topK},
      {"hidden", shape.hidden}, {"intermediate", shape.intermediate}, {"max_tokens", shape.maxTokens}};
  return options;
}

const Family* find(const TaskProgram& program, const Family& like) {
  for (const Family& family : program.families)
    if (family.name == like.name && family.entry == like.entry) return &family;
  return nullptr;
}

std::set<std::string> names(const TaskProgram& program, const std::vector<BufferId>& ids) {
  std::set<std::string> out;
  for (BufferId id : ids)
    if (id) out.insert(program.at(id).name);
  return out;
}

TEST_CASE("train.json compiles to the program of the schedule document, with and without copies of rows") {
  const bool inPlace = GENERATE(false, true);
  MoeShape shape;
  shape.inPlace = inPlace;
  shape.weightsAct = true;
  const TaskProgram expected = buildMoeProgram(shape);
  CompileOptions options = setsFor(shape);
  options.fuse = {"none"};
  options.copyRows = !inPlace;
  const Expected<TaskProgram> made = compile(kTrain, smallTarget(), options);
  if (!made) FAIL(made.error().message);
  CHECK(made->mesh == expected.mesh);
  CHECK(made->experts == expected.experts);
  CHECK(made->topK == expected.topK);
  CHECK(made->maxTokens == expected.maxTokens);
  CHECK(made->cores == expected.cores);
  CHECK(made->spaces == expected.spaces);
  CHECK(made->families.size() == expected.families.size());
  CHECK(made->events.size() == expected.events.size());
  CHECK(made->entries.size() == 2);
  CHECK(made->at(made->entries[0].expertIds).name == "expert_ids");
  CHECK(made->entries[1].routing == EntryId{0});
  for (const Family& family : expected.families) {
    INFO("family " << family.name << " of entry " << family.entry.value);
    const Family* like = find(*made, family);
    REQUIRE(like != nullptr);
    CHECK(like->op == family.op);
    CHECK(like->space == family.space);
    CHECK(like->tiles == family.tiles);
    CHECK(like->tiling == family.tiling);
    CHECK(names(*made, like->reads) == names(expected, family.reads));
    CHECK(names(*made, like->writes) == names(expected, family.writes));
    CHECK_THAT(like->source, Contains("graphs/moe_ffn/train.json:"));
  }
  for (const Lane& lane : expected.lanes) {
    const auto like = std::find_if(made->lanes.begin(), made->lanes.end(), [&](const Lane& other) {
      return other.name == lane.name && other.entry == lane.entry;
    });
    REQUIRE(like != made->lanes.end());
    INFO("lane " << lane.name << " of entry " << lane.entry.value);
    CHECK(like->priority == lane.priority);
    CHECK(like->rotation == lane.rotation);
    CHECK(like->seats.size() == lane.seats.size());
  }
}

TEST_CASE("products and activations are fused unless an option says otherwise") {
  const auto familiesWith = [](const std::vector<std::string>& fuse) {
    CompileOptions options = setsFor({});
    options.fuse = fuse;
    const Expected<TaskProgram> made = compile(kTrain, smallTarget(), options);
    if (!made) FAIL(made.error().message);
    std::set<std::string> found;
    for (const Family& family : made->families) found.insert(family.name);
    return found;
  };
  CHECK(familiesWith({}) == familiesWith({"all"}));
  CHECK(familiesWith({}).contains("up_proj_swiglu"));
  CHECK(familiesWith({}).contains("act_grad_swiglu_grad"));
  CHECK(familiesWith({"none"}).contains("swiglu_grad"));
  CHECK(familiesWith({"activation"}).contains("swiglu_grad"));
  CHECK(familiesWith({"activation-grad", "scale"}).contains("up_proj"));
  CompileOptions wrong = setsFor({});
  wrong.fuse = {"activation", "casts"};
  const Expected<TaskProgram> refused = compile(kTrain, smallTarget(), wrong);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Contains("cannot fuse casts, expected all, none, or some of"));
}

TEST_CASE("the graphs compile and verify for odd shapes") {
  const char* graph =
      GENERATE("graphs/moe_ffn/train.json", "graphs/moe_ffn/forward.json", "graphs/moe_ffn/backward.json");
  const MoeShape shape = GENERATE(MoeShape{}, MoeShape{1, 1, 1, 1, 1, 1}, MoeShape{4, 8, 3, 50, 9, 100},
                                  MoeShape{3, 6, 6, 33, 257, 7}, MoeShape{64, 256, 8, 7168, 2048, 4096});
  for (bool small : {true, false}) {
    const Expected<TaskProgram> made =
        compile(graph, small && shape.hidden < 1000 ? smallTarget() : Target{}, setsFor(shape));
    if (!made) FAIL(graph << ": " << made.error().message);
    CHECK(made->mesh.peers() == shape.ranks);
  }
}

TEST_CASE("the same input gives the same program, and another graph another hash") {
  const MoeShape shape;
  const Expected<TaskProgram> first = compile(kTrain, smallTarget(), setsFor(shape));
  const Expected<TaskProgram> second = compile(kTrain, smallTarget(), setsFor(shape));
  REQUIRE((first && second));
  CHECK(*first == *second);
  MoeShape wider;
  wider.hidden = 48;
  const Expected<TaskProgram> other = compile(kTrain, smallTarget(), setsFor(wider));
  REQUIRE(other);
  CHECK(other->graphHash != first->graphHash);
  CHECK(first->graphHash != 0);
}

TEST_CASE("the IR that import prints compiles to the same program but for where it comes from") {
  const MoeShape shape;
  const Expected<std::string> text = lower(kTrain, smallTarget(), setsFor(shape), "import");
  REQUIRE(text);
  const std::string path = writeFile("layer.mlir", *text);
  const Expected<TaskProgram> again = compile(path, smallTarget(), {});
  if (!again) FAIL(again.error().message);
  Expected<TaskProgram> first = compile(kTrain, smallTarget(), setsFor(shape));
  REQUIRE(first);
  CHECK(again->graphHash == first->graphHash);
  TaskProgram expected = *first, found = *again;
  expected.options = found.options;
  for (TaskProgram* program : {&expected, &found})
    for (Family& family : program->families) family.source.clear();
  CHECK(expected == found);
}

TEST_CASE("options override the target and stand in the program") {
  CompileOptions options = setsFor({});
  options.cores = 5;
  options.slotRows = 32;
  options.tile = 8;
  const Expected<TaskProgram> made = compile(kTrain, smallTarget(), options);
  if (!made) FAIL(made.error().message);
  CHECK(made->cores == 5);
  CHECK(made->spaces[1].slotSize == 32);
  CHECK(made->families[1].tiling.tileN == 8);
  CHECK_THAT(made->options, Contains("--set ep=1") && Contains("--cores 5 --slot-rows 32 --tile 8"));
}

// Names of the weight gradients that accumulate, in order.
std::vector<std::string> accumulating(const Expected<TaskProgram>& program) {
  if (!program) FAIL(program.error().message);
  std::vector<std::string> found;
  for (const Family& family : program->families)
    if (family.op == OpKind::kGmmWeightGrad && family.tiling.flags == 1) found.push_back(family.name);
  return found;
}

TEST_CASE("weight gradients accumulate where the graph or an option says so") {
  using Names = std::vector<std::string>;
  CompileOptions options = setsFor({});
  CHECK(accumulating(compile(kTrain, smallTarget(), options)) == Names{});
  options.accumulate = true;
  const Expected<TaskProgram> all = compile(kTrain, smallTarget(), options);
  CHECK(accumulating(all) == Names{"down_weight_grad", "gate_up_weight_grad"});
  CHECK_THAT(all->options, Catch::Matchers::EndsWith(" --accumulate"));

  std::ifstream file(kTrain);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string op = "\"op\": \"gmm_weight_grad\",";
  text.insert(text.rfind(op), "\"accumulate\": true, ");
  CHECK(accumulating(compile(writeFile("adds.json", text), smallTarget(), setsFor({}))) ==
        Names{"gate_up_weight_grad"});

  const std::string grad = "\"gate_up_weight_grad\": {\"type\": \"";
  text.replace(text.find(grad) + grad.size(), 3, "I32");
  const Expected<TaskProgram> wrong = compile(writeFile("wrong.json", text), smallTarget(), setsFor({}));
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().message,
             Contains("node 'gate_up_weight_grad': grad is [") && Contains("x f32 or bf16]"));
}

TEST_CASE("activations are of the kind that the graph says") {
  std::ifstream file(kTrain);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto with = [&](const std::string& kind) {
    const std::string swiglu = "\"kind\": \"activation\", \"limit\": 7";
    std::string edited = text;
    for (size_t at = 0; (at = edited.find(swiglu, at)) != std::string::npos; at += kind.size())
      edited.replace(at, swiglu.size(), kind);
    CompileOptions options = setsFor({});
    options.fuse = {"none"};
    return compile(writeFile("kind.json", edited), smallTarget(), options);
  };
  const auto activations = [&](const std::string& kind) {
    const Expected<TaskProgram> program = with(kind);
    if (!program) FAIL(program.error().message);
    std::set<std::pair<ActivationKind, float>> found;
    for (const Family& family : program->families)
      if (family.op == OpKind::kActivation || family.op == OpKind::kActivationGrad)
        found.insert({family.tiling.activation, toFloat(family.tiling.limit)});
    return found;
  };
  using Found = std::set<std::pair<ActivationKind, float>>;
  CHECK(activations(R"("kind": "swiglu")") == Found{{ActivationKind::kSwiglu, 0}});
  CHECK(activations(R"("kind": "swiglu_clamp", "limit": 7)") == Found{{ActivationKind::kSwigluClamp, 7}});
  CHECK(activations(R"("kind": "swiglu_clamp", "limit": 3.5)") == Found{{ActivationKind::kSwigluClamp, 3.5}});
  CHECK(activations(R"("kind": "geglu")") == Found{{ActivationKind::kGeglu, 0}});
  CHECK(activations(R"("kind": "squared_reglu")") == Found{{ActivationKind::kSquaredReglu, 0}});
  CHECK(activations(R"("kind": "swiglu_oai", "limit": 7)") == Found{{ActivationKind::kSwigluOai, 7}});
  const auto message = [&](const std::string& kind) {
    const Expected<TaskProgram> program = with(kind);
    return program ? std::string("compiled") : program.error().message;
  };
  CHECK_THAT(
      message(R"("kind": "selu")"),
      Contains("has kind 'selu', expected swiglu, swiglu_clamp, geglu, reglu, squared_reglu, swiglu_oai, "
               "silu, relu2"));
  CHECK_THAT(message(R"("kind": "geglu", "limit": 7)"), Contains("has a limit, expected none"));
  CHECK_THAT(message(R"("kind": "swiglu_clamp")"), Contains("has no limit, expected one"));
  CHECK_THAT(message(R"("kind": "swiglu_clamp", "limit": 1e39)"),
             Contains("expected a positive number that bf16 holds"));
  CHECK_THAT(message(R"("kind": "swiglu_clamp", "limit": "7")"), Contains("is a string, expected a number"));
}

TEST_CASE("bad input is reported with its place") {
  const auto message = [](const std::string& path, const CompileOptions& options) {
    const Expected<TaskProgram> made = compile(path, smallTarget(), options);
    return made ? std::string("compiled") : made.error().message;
  };
  CHECK_THAT(message("graphs/moe_ffn/none.json", {}), Contains("graphs/moe_ffn/none.json"));
  CHECK_THAT(message("layer.txt", {}), Contains("is neither .json nor .mlir"));
  CHECK_THAT(message(temporary("none.mlir"), {}), Contains("no such file"));
  CHECK_THAT(message(writeFile("bad.mlir", "moe.graph @x {"), {}), Contains("bad.mlir:1:14: error:"));
  CHECK_THAT(message(writeFile("empty.mlir", ""), {}), Contains("error: has 0 moe.graph ops, expected one"));
  CHECK_THAT(message(writeFile("alien.mlir", "\"other.op\"() : () -> ()"), {}),
             Contains("alien.mlir:1:11: error:"));
  CompileOptions sets;
  sets.sets = {{"ep", 2}};
  CHECK_THAT(message(writeFile("sets.mlir", ""), sets), Contains("symbol 'ep' cannot be set"));
  CompileOptions slots;
  slots.slotRows = 24;
  CHECK_THAT(message(kTrain, slots), Contains("is 24, expected a multiple of 16"));
  CHECK_THAT(lower(kTrain, smallTarget(), {}, "nonsense").error().message,
             Contains("unknown phase 'nonsense'"));
}

}  // namespace
}  // namespace sluice

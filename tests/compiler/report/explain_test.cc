#include "compiler/report/explain.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "compiler/dialect/diagnostics.h"
#include "compiler/graph/read_graph.h"
#include "runtime/program/words.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

MoeShape smallShape() {
  MoeShape shape;
  shape.ranks = 2;
  shape.hidden = 64;
  shape.intermediate = 96;
  return shape;
}

VerifiedProgram verified(const MoeShape& shape) {
  Expected<VerifiedProgram> program = verify(buildMoeProgram(shape));
  if (!program) FAIL(program.error().message);
  return *program;
}

// graphs/moe_ffn/train.json with the sizes of a program.
class TrainGraph {
 public:
  explicit TrainGraph(const MoeShape& shape) {
    const std::vector<std::pair<std::string, int64_t>> sets = {
        {"ep", shape.ranks},      {"experts", shape.experts},           {"top_k", shape.topK},
        {"hidden", shape.hidden}, {"intermediate", shape.intermediate}, {"max_tokens", shape.maxTokens}};
    auto module = readGraph("graphs/moe_ffn/train.json", {sets}, context_);
    if (!module) FAIL(module.error().message);
    module_ = std::move(*module);
  }

  operator moe::GraphOp() const { return *module_.get().getOps<moe::GraphOp>().begin(); }

  // Declares a split of rows for a node of the forward and returns its place.
  std::string declare(llvm::StringRef name, int64_t rows) {
    std::string place;
    module_.get().walk([&](moe::NodeOp node) {
      const bool isForward = node->getParentOfType<moe::EntryOp>().getSymName() == "forward";
      if (!isForward || node.getNode() != name) return;
      node.setSplitAttr(moe::SplitAttr::get(&context_, moe::SplitSpace::rows, rows));
      place = formatLocation(node->getLoc());
    });
    return place;
  }

 private:
  mlir::MLIRContext context_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

const FamilyExplanation& familyNamed(const TaskProgram& program, const Explanation& explanation,
                                     std::string_view entry, std::string_view name) {
  for (const FamilyExplanation& family : explanation.families)
    if (program.at(family.family).name == name && program.at(program.at(family.family).entry).name == entry)
      return family;
  FAIL("no family " << name);
  return explanation.families.front();
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST_CASE("a family says where its split comes from") {
  const MoeShape shape = smallShape();
  const VerifiedProgram program = verified(shape);
  TrainGraph graph(shape);
  const auto why = [&](const char* entry, const char* name, const std::vector<Decision>& decisions = {}) {
    return joined(familyNamed(*program, explain(program, graph, decisions), entry, name).why);
  };
  CHECK_THAT(why("forward", "dispatch"), Contains("slots of 16 rows: nothing declares any, as the target '" +
                                                  program->target + "' says"));
  CHECK_THAT(why("forward", "up_proj"), Contains("those of 'dispatch', which makes 'rows_x'"));
  CHECK_THAT(why("forward", "up_proj"), Contains("12 tiles: 192 columns in even parts of 16"));
  CHECK_THAT(why("forward", "combine.return"), Contains("those of 'down_proj', which makes 'down_out'"));
  CHECK_THAT(why("backward", "swiglu_grad"), Contains("one tile"));
  CHECK_THAT(why("backward", "down_weight_grad"), Contains("space experts"));
  CHECK_THAT(why("forward", "dispatch",
                 {{"", "8 cores send rows", "as told"},
                  {"", "slot of 16 rows", "2 ms; next best 32 rows, 3 ms", {}, kDecidedRows}}),
             Contains("as decided: slot of 16 rows (2 ms; next best 32 rows, 3 ms)"));
  CHECK_THAT(why("forward", "up_proj", {{"", "tiles of at most 16 columns", "1 ms", {}, kDecidedColumns}}),
             Contains("as decided: tiles of at most 16 columns (1 ms)"));
  CHECK_THAT(why("forward", "up_proj", {{"up_proj", "columns of 16", "they fit"}}),
             Contains("columns of 16: they fit"));
  const std::vector<Decision> other = {{"dispatch", "pieces", "as they come", "backward"}};
  CHECK_THAT(why("backward", "dispatch", other), Contains("pieces: as they come"));
  CHECK_THAT(why("forward", "dispatch", other), !Contains("pieces: as they come"));

  const std::string place = graph.declare("swiglu", 16);
  CHECK_THAT(place, Contains("graphs/moe_ffn/train.json:"));
  CHECK_THAT(why("forward", "swiglu"), Contains("slots of 16 rows: declared by node 'swiglu' at " + place));
  CHECK_THAT(
      why("forward", "dispatch"),
      Contains("no producer has any, so those that node 'swiglu' of entry 'forward' declares at " + place));
}

TEST_CASE("families of two sizes of rows say which they have and what they wait for") {
  MoeShape shape = smallShape();
  shape.groupSlots = 2;
  const VerifiedProgram program = verified(shape);
  TrainGraph graph(shape);
  for (const char* node : {"up_proj", "down_proj"}) REQUIRE_FALSE(graph.declare(node, 32).empty());
  REQUIRE_FALSE(graph.declare("swiglu", 16).empty());
  const Explanation explanation = explain(program, graph, {});
  const auto why = [&](const char* entry, const char* name) {
    return joined(familyNamed(*program, explanation, entry, name).why);
  };
  CHECK_THAT(why("forward", "up_proj"),
             Contains("space groups") && Contains("groups of 32 rows: declared by node 'up_proj'"));
  CHECK_THAT(why("forward", "swiglu"), Contains("slots of 16 rows: declared by node 'swiglu'"));
  CHECK_THAT(why("forward", "dispatch"),
             Contains("slots of 16 rows: pieces are cut by the smaller of the two sizes of rows"));
  CHECK_THAT(why("backward", "gate_grad"),
             Contains("groups of 32 rows: no producer has any, so those that node 'up_proj'"));
  const auto until = [&](const char* name) {
    return familyNamed(*program, explanation, "forward", name).waits.at(0).when;
  };
  CHECK(until("up_proj") == "until all rows of the group have arrived");
  CHECK(until("swiglu") == "until all 12 tiles of the group are done");
  CHECK(until("down_proj") == "until all slots of the group are done, 1 tasks each");
}

TEST_CASE("a family says what it waits for and signals, and why") {
  const MoeShape shape = smallShape();
  const VerifiedProgram program = verified(shape);
  const Explanation explanation = explain(program, TrainGraph(shape), {});
  const FamilyExplanation& up = familyNamed(*program, explanation, "forward", "up_proj");
  REQUIRE(up.waits.size() == 1);
  CHECK(up.waits[0].when == "until all rows of the slot have arrived");
  CHECK(up.waits[0].why == std::vector<std::string>{"'dispatch' of any rank writes 'rows_x'"});
  REQUIRE(up.signals.size() == 1);
  CHECK(up.signals[0].why == std::vector<std::string>{"'swiglu' reads 'gate_up'"});
  // row_weights arrived with the rows for which act_grad waited.
  const FamilyExplanation& grad = familyNamed(*program, explanation, "backward", "swiglu_grad");
  REQUIRE(grad.waits.size() == 1);
  CHECK_THAT(joined(grad.waits[0].why), Contains("'act_grad' writes 'act_grad_y'") &&
                                            Contains("'act_grad' starts after 'dispatch' has written "
                                                     "'row_weights'"));
  CHECK(grad.signals.size() == 2);
  CHECK(familyNamed(*program, explanation, "forward", "dispatch").waits.empty());
}

TEST_CASE("bytes and operations follow from the shapes") {
  const MoeShape shape = smallShape();  // 2 experts per rank, H 64, I 96
  const VerifiedProgram program = verified(shape);
  const Explanation explanation = explain(program, TrainGraph(shape), {});
  const auto work = [&](const char* entry, const char* name) {
    return familyNamed(*program, explanation, entry, name).work;
  };
  const FamilyWork up = work("forward", "up_proj");
  CHECK(up.read == Formula{2 * 64 * 192 * 2, 0, 64 * 2, 0});
  CHECK(up.written == Formula{0, 0, 192 * 2, 0});
  CHECK(up.flops == Formula{0, 0, 2 * 64 * 192, 0});
  const FamilyWork send = work("backward", "dispatch");
  CHECK(send.read == Formula{0, 0, 0, 64 * 2 + 4});
  CHECK(send.written == Formula{0, 0, 0, 64 * 2 + 4});
  CHECK(send.flops == Formula{});
  CHECK(work("forward", "combine.return").written == Formula{0, 0, 64 * 2, 0});
  CHECK(work("forward", "combine.sum").flops == Formula{0, 0, 0, 2 * 64});
  CHECK(work("backward", "down_weight_grad").flops == Formula{0, 0, 2 * 96 * 64, 0});
  CHECK(work("backward", "down_weight_grad").written == Formula{2 * 96 * 64 * 4, 0, 0, 0});

  // 64 tokens per rank, top 2: 128 rows for 2 experts of 64, 4 slots of 16 each.
  const FamilyExplanation& tasks = familyNamed(*program, explanation, "forward", "up_proj");
  CHECK(tasks.tasksInStep == 8 * 12);
  CHECK(tasks.tasksInWindow == 4 * 12);
  CHECK(familyNamed(*program, explanation, "forward", "dispatch").tasksInStep == 8 * 2);
  CHECK(familyNamed(*program, explanation, "forward", "combine.sum").tasksInStep == 8);
  CHECK(familyNamed(*program, explanation, "backward", "gate_up_weight_grad").tasksInStep == 2 * 4 * 12);
}

TEST_CASE("text and JSON say the same of every family, and of memory") {
  const MoeShape shape = smallShape();
  const VerifiedProgram program = verified(shape);
  const Explanation explanation =
      explain(program, TrainGraph(shape), {{"", "tiles of 16 columns", "they are small"}});
  const std::string text = printExplanation(*program, explanation);
  for (const Family& family : program->families)
    CHECK_THAT(text, Contains("\n  " + family.name + ": " + std::string(text::word(family.op)) + " over "));
  CHECK_THAT(text, Contains("decisions\n  tiles of 16 columns: they are small") && Contains("\nmemory\n") &&
                       Contains("  in all: ") && Contains("24576 R FLOP"));
  const nlohmann::json json = nlohmann::json::parse(printExplanationJson(*program, explanation));
  REQUIRE(json["families"].size() == program->families.size());
  CHECK(json["families"][1]["family"] == "up_proj");
  CHECK(json["families"][1]["flops"]["R"] == 2 * 64 * 192);
  CHECK(json["families"][1]["waits"][0]["event"] == "rows_arrived");
  CHECK(json["memory"]["regions"].size() == program->regions.size());
  CHECK(json["decisions"].size() == 1);
}

TEST_CASE("what shares a region says why it may") {
  MoeShape shape = smallShape();
  const VerifiedProgram program = verified(shape);
  const Explanation explanation = explain(program, TrainGraph(shape), {});
  std::string all;
  for (const std::vector<std::string>& reasons : explanation.sharing) all += joined(reasons);
  CHECK_THAT(all, Contains("'gate_grad' writes 'rows_dx' after the last use of 'act_grad_y'"));
  CHECK_THAT(all, Contains("are of different entries"));
}

}  // namespace
}  // namespace sluice

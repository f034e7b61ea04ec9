// Nodes of one layer that cut rows by two sizes: the same bits as with one, in both directions and across
// entries, and what cannot be cut is refused with both nodes.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "runtime/program/codec.h"
#include "tests/layer/graph_run.h"

namespace sluice {
namespace {

using Splits = std::map<std::string, int>;  // rows by name of a node, in all entries

// A shipped graph with splits, as a file.
std::string graphWith(const std::string& name, const Splits& splits) {
  std::ifstream in("graphs/moe_ffn/" + name);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const auto& [node, rows] : splits) {
    const std::string field = fmt::format("\"name\": \"{}\",", node);
    size_t found = 0;
    for (size_t at = text.find(field); at != std::string::npos; at = text.find(field, at + 1), ++found)
      text.insert(at + field.size(), fmt::format(" \"split\": {{\"space\": \"rows\", \"size\": {}}},", rows));
    INFO(node);
    REQUIRE(found > 0);
  }
  const std::string path = std::filesystem::path(std::getenv("TEST_TMPDIR")) / ("resplit_" + name);
  std::ofstream(path) << text;
  return path;
}

CompileOptions fusing(const std::vector<std::string>& fuse) {
  return {.sets = {{"ep", 3},
                   {"experts", 6},
                   {"top_k", 2},
                   {"hidden", 72},
                   {"intermediate", 56},
                   {"max_tokens", 160}},
          .cores = 3,
          .tile = 32,
          .fuse = fuse};
}

// Ragged, a rank without tokens, hot experts.
const tools::InputsSpec kResplitInputs{
    .tokens = {.counts = {160, 0, 93}}, .routing = {tools::RoutingKind::kZipf, 1.2}, .seed = 7};

uint64_t bitsBy(const Program& program, ExecutorKind executor) {
  LayerData data = makeGraphData(program, kResplitInputs);
  runGraph(program, executor, data);
  return hashOutputs(data);
}

int familiesIn(const Program& program, SpaceKind kind) {
  int count = 0;
  for (const Family& family : program.tables().families)
    count += program.tables().at(family.space).kind == kind;
  return count;
}

TEST_CASE("two sizes of rows give the bits of one, whichever nodes have which") {
  const uint64_t plain = bitsBy(compileGraph(graphWith("train.json", {{"up_proj", 16}}), fusing({"none"})),
                                ExecutorKind::kSerial);
  const Splits wideProducts = {{"up_proj", 64},   {"down_proj", 64},  {"act_grad", 64},
                               {"gate_grad", 64}, {"activation", 16}, {"activation_grad", 16}};
  const Splits wideActivations = {{"up_proj", 16},   {"down_proj", 16},  {"act_grad", 16},
                                  {"gate_grad", 16}, {"activation", 48}, {"activation_grad", 48}};
  const Splits onlyFirst = {{"up_proj", 32}, {"activation", 16}},
               onlyLast = {{"up_proj", 16}, {"gate_grad", 80}};
  for (const Splits& splits : {wideProducts, wideActivations, onlyFirst, onlyLast}) {
    const Program program = compileGraph(graphWith("train.json", splits), fusing({"none"}));
    CHECK(familiesIn(program, SpaceKind::kGroups) > 0);
    CHECK(familiesIn(program, SpaceKind::kRows) > 0);
    CHECK(bitsBy(program, ExecutorKind::kSerial) == plain);
    CHECK(bitsBy(program, ExecutorKind::kParallel) == plain);
  }
}

TEST_CASE("fused products on groups give the bits of products on slots") {
  const uint64_t plain =
      bitsBy(compileGraph(graphWith("train.json", {{"up_proj", 16}}), fusing({})), ExecutorKind::kSerial);
  const Program wide = compileGraph(
      graphWith("train.json", {{"up_proj", 64}, {"act_grad", 64}, {"down_proj", 16}, {"gate_grad", 16}}),
      fusing({}));
  CHECK(familiesIn(wide, SpaceKind::kGroups) == 2);  // with their activations
  CHECK(bitsBy(wide, ExecutorKind::kParallel) == plain);
  const Program all = compileGraph(
      graphWith("train.json",
                {{"up_proj", 64}, {"act_grad", 64}, {"down_proj", 64}, {"gate_grad", 64}, {"dispatch", 16}}),
      fusing({}));
  CHECK(familiesIn(all, SpaceKind::kGroups) == 4);
  CHECK(familiesIn(all, SpaceKind::kRows) == 0);
  CHECK(bitsBy(all, ExecutorKind::kParallel) == plain);
}

TEST_CASE("gradients that are derived from a layer of two sizes are those of one") {
  CompileOptions options = fusing({});
  options.trainable = std::vector<std::string>{"all"};
  for (const char* keep : {"all", "minimal"}) {
    options.keep = keep;
    const uint64_t plain =
        bitsBy(compileGraph(graphWith("forward.json", {{"up_proj", 16}}), options), ExecutorKind::kSerial);
    for (const Splits& splits :
         {Splits{{"up_proj", 64}, {"down_proj", 16}}, Splits{{"up_proj", 16}, {"down_proj", 64}}}) {
      const Program program = compileGraph(graphWith("forward.json", splits), options);
      CHECK(familiesIn(program, SpaceKind::kGroups) > 0);
      CHECK(bitsBy(program, ExecutorKind::kParallel) == plain);
    }
  }
}

TEST_CASE("composed graphs of two sizes compute what they say") {
  CompileOptions options = fusing({});
  options.trainable = std::vector<std::string>{"all"};
  for (const char* name : {"shared_expert.json", "two_gmms.json", "lora.json"}) {
    INFO(name);
    const Program program = compileGraph(graphWith(name, {{"activation", 64}, {"down_proj", 16}}), options);
    LayerData data = makeGraphData(program, {.tokens = {.ragged = true, .most = 160}, .seed = 3});
    runGraph(program, ExecutorKind::kParallel, data);
    for (const tools::OutputError& error : errorsOfGraph(program, data)) {
      INFO(error.name);
      CHECK(error.relative <= 1.5e-2);
    }
  }
}

TEST_CASE("sizes of which neither is a multiple of the other are refused with both nodes") {
  const auto target = loadTarget("targets/cpu.json", {});
  REQUIRE(target.ok());
  const auto tables =
      compile(graphWith("train.json", {{"up_proj", 64}, {"down_proj", 96}}), *target, fusing({}));
  REQUIRE_FALSE(tables.ok());
  CHECK_THAT(tables.error().message, Catch::Contains("node 'down_proj' cuts 'rows' by 96, but ") &&
                                         Catch::Contains("cuts it by 64") && Catch::Contains("is set here"));
}

}  // namespace
}  // namespace sluice

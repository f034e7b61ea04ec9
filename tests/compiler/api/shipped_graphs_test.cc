// Every shipped graph: what the compiler reports about it, and which parts of it can be written again.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/api/compile.h"
#include "compiler/api/pipeline.h"
#include "compiler/dialect/moe.h"
#include "compiler/report/memory_report.h"
#include "runtime/program/text.h"
#include "tests/testing/test_files.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

struct Shipped {
  std::string path;
  bool trained = false;
  std::string activation = {};  // empty: that of the graph

  CompileOptions options() const {
    CompileOptions options;
    if (trained) options.trainable = {"all"};
    if (!activation.empty()) options.words = {{"activation", activation}};
    return options;
  }
};

bool hasBackward(const std::string& path) {
  return path.ends_with("/train.json") || path.ends_with("/backward.json") ||
         path.find("/exchange/") != std::string::npos;
}

// The graphs themselves, and with a derived backward if they have none.
std::vector<Shipped> shippedGraphs() {
  std::vector<Shipped> graphs;
  for (const char* folder : {"graphs/moe_ffn", "graphs/linear", "graphs/exchange"})
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      const std::string path = file.path().string();
      if (!path.ends_with(".json")) continue;
      graphs.push_back({path});
      if (!hasBackward(path)) graphs.push_back({path, true});
    }
  for (const char* activation :
       {"swiglu_clamp", "geglu", "reglu", "squared_reglu", "swiglu_oai", "silu", "relu2"})
    graphs.push_back({"graphs/moe_ffn/forward.json", true, activation});
  for (const Shipped& graph : std::vector<Shipped>(graphs))
    if (graph.path.starts_with("graphs/moe_ffn/") && graph.activation.empty())
      graphs.push_back({graph.path, graph.trained, graph.trained ? "silu" : "relu2"});
  REQUIRE(graphs.size() > 20);
  return graphs;
}

// The graph with each option for what is kept, fused or not.
std::vector<CompileOptions> variantsOf(const Shipped& graph) {
  std::vector<CompileOptions> variants(2, graph.options());
  variants[1].fuse = {"none"};
  if (!graph.trained) return variants;
  for (int i = 0; i < 2; ++i) {
    for (const char* keep : {"minimal", "regather"}) {
      variants.push_back(variants[i]);
      variants.back().keep = keep;
    }
  }
  return variants;
}

TEST_CASE("memory plans of the shipped graphs are within 5% of the peak of live bytes") {
  for (const Shipped& graph : shippedGraphs())
    for (const CompileOptions& options : variantsOf(graph)) {
      INFO(graph.path << " " << graph.activation << (graph.trained ? ", trained" : "")
                      << (options.fuse.empty() ? "" : ", not fused"));
      const Expected<TaskProgram> program = compile(graph.path, Target{}, options);
      if (!program) FAIL(program.error().message);
      const MemoryReport report = reportMemory(*program);
      CHECK(overPeak(*program, report.all) <= 1.05);
      for (Extent extent : {Extent::kFixed, Extent::kTokens, Extent::kRows, Extent::kPairs})
        CHECK(report.all.planned.at(extent) >= report.all.peak.at(extent));
    }
}

TEST_CASE("the shipped graphs compile and are planned alike where ranks own different numbers of experts") {
  for (const Shipped& graph : shippedGraphs())
    for (const int64_t experts : {7, 2}) {
      INFO(graph.path << " " << graph.activation << (graph.trained ? ", trained, " : ", ") << experts
                      << " experts");
      if (graph.path.find("moe_ffn") == std::string::npos) continue;  // the others have no weights of experts
      CompileOptions options = graph.options();
      options.sets = {{"ep", 3}, {"experts", experts}, {"top_k", 2}};
      const Expected<TaskProgram> program = compile(graph.path, Target{}, options);
      if (!program) FAIL(program.error().message);
      CHECK(overPeak(*program, reportMemory(*program).all) <= 1.05);
      for (const Buffer& buffer : program->buffers) {
        const bool isBias = buffer.name.find("bias") != std::string::npos && buffer.shape.size() == 2;
        CHECK((buffer.shape.size() == 3 || isBias) == (buffer.shape.front() == Dim{Extent::kExperts, 0}));
      }
    }
}

TEST_CASE("telling how a program came about gives the same program") {
  for (const Shipped& graph : shippedGraphs()) {
    INFO(graph.path << " " << graph.activation << (graph.trained ? ", trained" : ""));
    const Expected<TaskProgram> program = compile(graph.path, Target{}, graph.options());
    const Expected<Compiled> reported = compileWithReport(graph.path, Target{}, graph.options());
    REQUIRE((program && reported));
    CHECK(*reported->program == *program);
    size_t entries = 0;
    reported->graph->module.get().walk([&](moe::EntryOp) { ++entries; });
    CHECK(entries == program->entries.size());
    CHECK(printIr(*reported->graph) == *lower(graph.path, Target{}, graph.options(), "weight-rows"));
    CHECK(printProgram(*program) == *lower(graph.path, Target{}, graph.options(), ""));
    CHECK_FALSE(reported->decisions.empty());
    const auto timed = [&](const char* phase) {
      return std::any_of(reported->times.begin(), reported->times.end(),
                         [&](const PhaseTime& time) { return time.phase == phase && time.seconds > 0; });
    };
    for (const char* phase : {"read", "propagate-splits", "form-tasks", "plan-memory", "verify"})
      CHECK(timed(phase));
  }
}

TEST_CASE("what a phase has made of a program reads again, however little it is") {
  for (const char* phase : {"form-tasks", "cut-tasks", "insert-events", "assign-cores", "plan-memory"}) {
    INFO(phase);
    const Expected<std::string> text = lower("graphs/moe_ffn/train.json", Target{}, {}, phase);
    if (!text) FAIL(text.error().message);
    const Expected<TaskProgram> program = parseProgram(*text, phase);
    if (!program) FAIL(program.error().message);
    CHECK(printProgram(*program) == *text);
    CHECK(program->families.size() > 5);
  }
}

// Does what sluicec does for --emit=json.
Expected<std::string> graphFile(const std::string& path, const CompileOptions& options) {
  const Expected<IrPointer> graph = deriveGraph(path, Target{}, options);
  if (!graph) return graph.error();
  return printGraphFile(**graph, path);
}

TEST_CASE("the shipped graphs can be written as graph files and read again") {
  for (const Shipped& graph : shippedGraphs()) {
    INFO(graph.path << " " << graph.activation << (graph.trained ? ", trained" : ""));
    const Expected<std::string> file = graphFile(graph.path, graph.options());
    if (!file) FAIL(file.error().message);
    const Expected<std::string> before = lower(graph.path, Target{}, graph.options(), "weight-rows");
    const std::string path = writeFile("again.json", *file);
    const Expected<std::string> after = lower(path, Target{}, {}, "weight-rows");
    if (!after) FAIL(after.error().message);
    CHECK(*after == *before);
    const Expected<std::string> fromIr = graphFile(writeFile("again.mlir", *before), {});
    REQUIRE(fromIr);
    CHECK(*fromIr == *file);
  }
}

TEST_CASE("a graph that no graph file can say is an error") {
  const Expected<std::string> ir = lower("graphs/moe_ffn/forward.json", Target{}, {}, "import");
  REQUIRE(ir);
  std::string text = *ir;
  const std::string entry = "moe.entry @forward {";
  text.insert(text.find(entry) + entry.size(),
              "\n      %u = moe.input \"unused\" : !moe.tensor<T x 8 x bf16>");
  const Expected<std::string> file = graphFile(writeFile("unused.mlir", text), {});
  REQUIRE_FALSE(file);
  CHECK_THAT(file.error().message, Contains("unused.mlir") && Contains("'unused' is used by no node"));
}

}  // namespace
}  // namespace sluice

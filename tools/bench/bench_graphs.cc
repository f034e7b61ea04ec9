// Compiles the graphs that are part of this tool.
#include <algorithm>
#include <string_view>
#include <utility>

#include "compiler/api/compile.h"
#include "compiler/target/target.h"
#include "tools/bench/bench_layer.h"

namespace sluice::tools {
namespace {

constexpr std::string_view kRowsGraph =
#include "tools/bench/ffn_rows.inc"
    ;
constexpr std::string_view kLayerGraph =
#include "tools/bench/train.inc"
    ;
constexpr std::string_view kColumnParallelGraph =
#include "tools/bench/column_parallel.inc"
    ;
constexpr std::string_view kRowParallelGraph =
#include "tools/bench/row_parallel.inc"
    ;

Expected<Program> compileGraph(std::string_view graph, const CompileOptions& compile,
                               const BenchOptions& options) {
  const Expected<Target> target = loadTarget(options.target, options.targetFolders);
  if (!target) return target.error();
  Expected<TaskProgram> program = sluice::compileText(graph, "layer.json", *target, compile);
  if (!program) return program.error();
  return Program::fromTaskProgram(std::move(*program));
}

CompileOptions layerOptions(const LayerCase& c, int threads) {
  CompileOptions options;
  options.sets = {{"ep", c.ranks / c.tp},  {"tp", c.tp},         {"experts", c.experts},
                  {"top_k", c.topK},       {"hidden", c.hidden}, {"intermediate", c.inter},
                  {"max_tokens", c.tokens}};
  options.cores = threads;
  // already checked when the case was made
  options.expect = {.name = c.skew, .exponent = *skewExponent(c.skew), .shares = {}};
  return options;
}

Expected<Program> compileLinear(const LayerCase& c, int threads, const BenchOptions& options) {
  CompileOptions compile;
  compile.sets = {{"tp", c.ranks}, {"in", c.hidden}, {"out", c.inter}, {"max_tokens", c.tokens}};
  compile.words = {{"tokens", c.sameTokens ? "same" : "own"}};
  compile.trainable = std::vector<std::string>{"all"};
  compile.cores = threads;
  return compileGraph(c.kind == LayerKind::kColumnParallel ? kColumnParallelGraph : kRowParallelGraph,
                      compile, options);
}

}  // namespace

Expected<Program> compileRows(const RowsCase& c, int threads, const BenchOptions& options) {
  CompileOptions compile;
  compile.sets = {{"experts", c.experts()},
                  {"hidden", c.hidden},
                  {"intermediate", c.inter},
                  {"max_tokens", std::max<int64_t>(1, c.allRows())}};
  compile.cores = threads;
  compile.expect.name = "the rows of the case";
  compile.expect.shares.assign(c.rows.begin(), c.rows.end());
  if (c.allRows() == 0) compile.expect = {};
  compile.encode = printEncodings(options.encodings);
  compile.trainable = std::vector<std::string>{options.encodings.weights->hasCodes() ? "x" : "all"};
  return compileGraph(kRowsGraph, compile, options);
}

Expected<Program> compileLayer(const LayerCase& c, int threads, const BenchOptions& options) {
  return c.isLinear() ? compileLinear(c, threads, options)
                      : compileGraph(kLayerGraph, layerOptions(c, threads), options);
}

Expected<Program> compileLayerRows(const LayerCase& c, int threads, const BenchOptions& options) {
  CompileOptions compile = layerOptions(c, threads);
  compile.trainable = std::vector<std::string>{"all"};
  return compileGraph(kRowsGraph, compile, options);
}

}  // namespace sluice::tools

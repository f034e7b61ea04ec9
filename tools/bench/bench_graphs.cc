// Compiles the graphs that are part of this tool.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string_view>

#include "compiler/api/compile.h"
#include "compiler/target/target.h"
#include "runtime/base/pending_file.h"
#include "tools/bench/bench_layer.h"
#include "tools/bench/skew.h"

namespace sluice::tools {
namespace {

constexpr std::string_view kRowsGraph =
#include "tools/bench/ffn_rows.inc"
    ;
constexpr std::string_view kLayerGraph =
#include "tools/bench/train.inc"
    ;

// A folder of its own, gone at the end.
class Folder {
 public:
  Folder() {
    std::error_code failed;
    std::string name = (std::filesystem::temp_directory_path(failed) / "sluice-bench-XXXXXX").string();
    if (!failed && mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The compiler reads files.
Expected<Program> compileText(std::string_view graph, const CompileOptions& compile,
                              const BenchOptions& options) {
  const Expected<Target> target = loadTarget(options.target, options.targetFolders);
  if (!target) return target.error();
  const Folder folder;
  if (folder.path().empty()) return Error{"found no folder for temporary files that can be written"};
  const std::string path = folder.path() + "/layer.json";
  if (Status status = replaceFile(path, std::as_bytes(std::span(graph))); !status) return status.error();
  Expected<TaskProgram> program = sluice::compile(path, *target, compile);
  if (!program) return program.error();
  return Program::fromTaskProgram(std::move(*program));
}

CompileOptions layerOptions(const LayerCase& c, int threads) {
  CompileOptions options;
  options.sets = {{"ep", c.ranks},      {"experts", c.experts},    {"top_k", c.topK},
                  {"hidden", c.hidden}, {"intermediate", c.inter}, {"max_tokens", c.tokens}};
  options.cores = threads;
  // Checked when the case was made.
  options.expect = {.name = c.skew, .exponent = *skewExponent(c.skew), .shares = {}};
  return options;
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
  return compileText(kRowsGraph, compile, options);
}

Expected<Program> compileLayer(const LayerCase& c, int threads, const BenchOptions& options) {
  return compileText(kLayerGraph, layerOptions(c, threads), options);
}

Expected<Program> compileRowsOf(const LayerCase& c, int threads, const BenchOptions& options) {
  return compileText(kRowsGraph, layerOptions(c, threads), options);
}

}  // namespace sluice::tools

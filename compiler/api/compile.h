// compile: turns a graph file into a verified task program, for tools and tests.
//
// Free functions; no state is kept between calls, and any number of threads may compile at once. Errors are
// whole reports: "file:line:column: error: message" and notes, one per line. The same input gives the same
// program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/analysis/cost/routing.h"
#include "compiler/analysis/decision.h"
#include "compiler/target/target.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "runtime/program/verify.h"

namespace sluice {

// The cores of a target with separate matrix and vector cores; 0: the target's number.
struct SeparateCores {
  int32_t cube = 0;
  int32_t vector = 0;
  // Vector cores that only send and return rows. If not given, the target's share of them.
  std::optional<int32_t> communication = {};
  friend bool operator==(const SeparateCores&, const SeparateCores&) = default;
};

struct CompileOptions {
  std::vector<std::pair<std::string, int64_t>> sets;            // values of numeric symbols; none for .mlir
  std::vector<std::pair<std::string, std::string>> words = {};  // likewise for symbols whose value is a word
  int32_t cores = 0;                                            // seats of a lane; 0: the target's number
  SeparateCores separate = {};  // instead of `cores`, if they are of two kinds
  int32_t sendCores = 0;        // the most cores that share sends; 0: all that may communicate
  int32_t returnCores = 0;      // likewise returns
  int32_t slotRows = 0;         // rows per slot; 0: chosen, or the target's
  int32_t tile = 0;             // most rows and columns of a product's task; 0: likewise
  bool accumulate = false;      // all weight gradients are added to the old content of their outputs
  // Inputs of the graph's only entry: an entry `backward` is derived that computes their gradients. "all":
  // every input that has one. If not given, the graph is used unchanged.
  std::optional<std::vector<std::string>> trainable = {};
  // What the forward keeps for a derived entry: all it reads; minimal, which recomputes activations; or
  // regather, which also dispatches rows again.
  std::string keep = "all";
  std::string grads = "F32";      // or BF16: the type of derived weight gradients
  bool delayWeightGrads = false;  // an entry `weight_grads` after `backward` computes them
  // What numbers are stored as, rounded to and sent as: a text for parseEncodings()
  // (runtime/base/encodings.h).
  std::string encode = "";
  bool copyRows = false;  // one rank, too, copies tokens to rows and back; no result changes a bit
  // What is fused: all, none, or some of activation, activation-grad, scale; empty: all. The bits of the
  // results do not depend on it. With separate matrix and vector cores, all means scale.
  std::vector<std::string> fuse = {};
  Expectation expect = {};  // the routing for which sizes are chosen, if the target has rates
};

// Compiles PATH.json, a graph file, or PATH.mlir, a moe.graph. Errors: what is wrong with the file, the
// graph, a symbol or an option; an option that does not fit the target; a program that verify() refuses.
Expected<TaskProgram> compile(const std::string& path, const Target& target, const CompileOptions& options);

// Likewise for the text of a graph file; messages show `name`, NAME.json, as its path.
Expected<TaskProgram> compileText(std::string_view text, const std::string& name, const Target& target,
                                  const CompileOptions& options);

// The graph as IR; pipeline.h.
struct Ir;
using IrPointer = std::shared_ptr<const Ir>;

// How long one phase of a compilation took.
struct PhaseTime {
  std::string phase;  // name of a pass or phase, or of the work before, between and after them
  double seconds = 0;
};

// A program and the record of how it was compiled: everything that a caller can learn of one compilation.
struct Compiled {
  VerifiedProgram program;
  IrPointer graph;  // the graph that it was compiled from, with derived entries
  std::vector<Decision> decisions;
  std::vector<PhaseTime> times;     // in order
  std::map<std::string, int> runs;  // how often each pass and phase ran, and "read"
};

// Errors: as compile().
Expected<Compiled> compileWithReport(const std::string& path, const Target& target,
                                     const CompileOptions& options);

// The graph with derived entries, before any other phase. Errors: as compile().
Expected<IrPointer> deriveGraph(const std::string& path, const Target& target, const CompileOptions& options);

// The text of a graph file for this graph. `path` is the file that it was read from. Errors: a graph that no
// graph file can express.
Expected<std::string> printGraphFile(const Ir& graph, const std::string& path);

// IR as text.
std::string printIr(const Ir& ir);

// The result of the phase `stopAfter` (one of phaseNames(); empty: the last): IR after a phase of the graph,
// else the text of a program, which parseProgram() reads.
Expected<std::string> lower(const std::string& path, const Target& target, const CompileOptions& options,
                            const std::string& stopAfter);

}  // namespace sluice

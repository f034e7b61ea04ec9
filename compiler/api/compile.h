// compile: from a graph file to a verified task program, for tools and tests.
//
// Free functions; no state is kept between calls, any number of threads may compile at once. Errors are whole
// reports: "file:line:column: error: message" and notes, one per line. Same input, same program.
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
#include "compiler/api/phase_time.h"
#include "compiler/target/target.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "runtime/program/verify.h"

namespace sluice {

// Cores of a target with separate matrix and vector cores; 0: the target's.
struct SeparateCores {
  int32_t cube = 0;
  int32_t vector = 0;
  // Vector cores that do nothing but send and return rows. Not given: the target's share of them.
  std::optional<int32_t> communication = {};
  friend bool operator==(const SeparateCores&, const SeparateCores&) = default;
};

struct CompileOptions {
  std::vector<std::pair<std::string, int64_t>> sets;            // symbols of a graph file; none for .mlir
  std::vector<std::pair<std::string, std::string>> words = {};  // likewise, those whose value is a word
  int32_t cores = 0;                                            // seats of a lane; 0: the target's
  SeparateCores separate = {};                                  // instead, where they are of two kinds
  int32_t slotRows = 0;                                         // rows of a slot; 0: chosen, or the target's
  int32_t tile = 0;         // most rows and columns of a task of a product; 0: likewise
  bool accumulate = false;  // all weight gradients add to what their outputs hold
  // Inputs of the graph's only entry, for which an entry `backward` is derived that gives their gradients;
  // "all": every input that has one. Not given: the graph is taken as it is.
  std::optional<std::vector<std::string>> trainable = {};
  // What a derived entry finds kept: all it reads, or minimal, where activations are computed again.
  std::string keep = "all";
  std::string grads = "F32";  // or BF16: the type of derived weight gradients
  // What is made one node: all, none, or some of activation, activation-grad, scale; empty: all. The bits of
  // the results do not depend on it. With separate matrix and vector cores, all is scale.
  std::vector<std::string> fuse = {};
  Expectation expect = {};  // the routing that sizes are chosen for, where the target has rates
};

// Compiles PATH.json, a graph file, or PATH.mlir, a moe.graph. Errors: what is wrong with the file, the
// graph, a symbol, an option, one that does not go with the target; a program that verify() refuses.
Expected<TaskProgram> compile(const std::string& path, const Target& target, const CompileOptions& options);

// Likewise the text of a graph file; `name`, NAME.json, stands for its path in messages.
Expected<TaskProgram> compileText(std::string_view text, const std::string& name, const Target& target,
                                  const CompileOptions& options);

// The graph as IR; ir.h.
struct Ir;
using IrPointer = std::shared_ptr<const Ir>;

// A program and the record of how it was compiled: all that a caller can want of one compilation.
struct Compiled {
  VerifiedProgram program;
  IrPointer graph;  // what it was compiled from, with derived entries
  std::vector<Decision> decisions;
  std::vector<PhaseTime> times;     // in order
  std::map<std::string, int> runs;  // how often each pass and phase ran, and "read"
};

// As compile().
Expected<Compiled> compileWithReport(const std::string& path, const Target& target,
                                     const CompileOptions& options);

// The graph with derived entries, as a compilation begins. Errors: as compile().
Expected<IrPointer> deriveGraph(const std::string& path, const Target& target, const CompileOptions& options);

// The text of a graph file that reads to this graph. `path` is where it came from. Errors: a graph that no
// graph file can express.
Expected<std::string> graphFileOf(const Ir& graph, const std::string& path);

// IR as text.
std::string printIr(const Ir& ir);

// What the phase `stopAfter` (one of phaseNames(); empty: the last) has made: IR after a phase of the graph,
// else the text of a program, which parseProgram() reads.
Expected<std::string> lower(const std::string& path, const Target& target, const CompileOptions& options,
                            const std::string& stopAfter);

}  // namespace sluice

// The pipeline: all passes in order, from a moe.graph to a complete task.program. It has two parts, since the
// sizes that the second one needs are chosen by what the first one made.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/analysis/lane_order.h"
#include "compiler/analysis/tiles.h"
#include "compiler/target/target.h"
#include "mlir/Pass/PassManager.h"

namespace sluice {

struct PipelineOptions {
  std::string optionLine;  // for the program
  uint64_t graphHash = 0;
  std::string stopAfter;  // a phase; empty: run all
  // Derives a backward entry for these inputs, if given; empty: for all that have a gradient.
  std::optional<std::vector<std::string>> trainable = {};
  bool accumulate = false;             // derived weight gradients add to what their outputs hold
  std::vector<std::string> fuse = {};  // as given to --fuse; empty: all
  // What a derived entry finds kept: all, or minimal, where activations are computed again.
  std::string keep = "all";
  std::string grads = "F32";             // or BF16: the type of derived weight gradients
  std::vector<LaneRule> laneRules = {};  // by entry; not given: kFromEnd
};

// The phases in order, by the names of their passes; check passes belong to the phase before them.
std::vector<std::string_view> phaseNames();

// Whether `phase` is one of the first part: it works on the graph alone.
bool isGraphPhase(std::string_view phase);

// The first part, to `fuse`: adds the one pass of a phase of the graph, if the options ask for it, to a
// manager of builtin.module. `import` has none.
void addGraphPhase(mlir::OpPassManager& manager, std::string_view phase, const Target& target,
                   const PipelineOptions& options);

// The second part: adds the passes from `propagate-splits` on. `options.stopAfter` must be one of its phases,
// or empty.
void addTaskPhases(mlir::OpPassManager& manager, const Target& target, const PipelineOptions& options);

}  // namespace sluice

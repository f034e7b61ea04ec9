// Sizes and lane order for one compilation: what the cost model chooses where neither the graph nor the user
// says.
//
// Free function; the module is left as it is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/analysis/decision.h"
#include "compiler/api/compile.h"
#include "compiler/passes/pipeline.h"
#include "mlir/IR/BuiltinOps.h"

namespace sluice {

struct Chosen {
  Target target;                    // with the sizes
  std::vector<LaneRule> laneRules;  // by entry; none: nothing was chosen
};

// `target`, with the sizes that the model finds best for what `pipeline` makes of `module`, and why in
// `decisions`; the passes that this takes are counted in `runs`. `module` is past the phases of the graph. A
// target without rates stays as it is. The sizes of `options` stay, and so do slots that the graph declares.
// Errors: shares that are not of as many experts as the graph has. After a failed pass the target stays as it
// is too: the compilation itself reports it.
Expected<Chosen> chooseTarget(mlir::ModuleOp module, Target target, const CompileOptions& options,
                              const PipelineOptions& pipeline, std::vector<Decision>& decisions,
                              std::map<std::string, int>& runs);

}  // namespace sluice

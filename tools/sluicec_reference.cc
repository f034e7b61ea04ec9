#include "tools/sluicec_reference.h"

#include <fmt/format.h>

#include "compiler/analysis/reference_plan.h"
#include "compiler/analysis/reference_plan_text.h"
#include "compiler/api/compile.h"
#include "compiler/api/ir.h"
#include "compiler/export/export_graph.h"
#include "compiler/graph/read_graph.h"

namespace sluice {

Expected<std::string> printReferencePlan(const std::string& path, const Target& target,
                                         const std::vector<std::pair<std::string, int64_t>>& sets,
                                         bool asJson) {
  if (target.cubeCores == 0)
    return Error{
        fmt::format("error: the reference policy plans for cube and vector cores, but those of target "
                    "'{}' are unified; try --target ascend910b",
                    target.name)};
  ReferenceOptions options;
  options.cubeCores = target.cubeCores;
  options.vectorCores = target.vectorCores;
  std::vector<std::pair<std::string, int64_t>> symbols;
  for (const auto& [name, value] : sets) {
    if (name == "tp") {
      options.tp = value;
    } else if (name == "rank") {
      options.rank = value;
    } else if (name == "seq") {
      if (value == 0) return Error{"error: seq is 0, expected 1 or more"};
      options.seq = value;
    } else {
      symbols.emplace_back(name, value);
    }
  }
  // IR is read by a compilation that stops before it looks at the target.
  CompileOptions compilation;
  compilation.sets = symbols;
  const auto derived = [&]() -> Expected<Graph> {
    const Expected<IrPointer> ir = deriveGraph(path, Target{}, compilation);
    if (!ir) return ir.error();
    return exportGraph(*(*ir)->module, path);
  };
  const Expected<Graph> graph = path.ends_with(".json") ? readGraph(path, symbols) : derived();
  if (!graph) return graph.error();
  const Expected<StaticPlan> plan = planReference(*graph, options);
  if (!plan) return plan.error();
  return asJson ? printPlanJson(*plan) : printPlan(*plan);
}

}  // namespace sluice

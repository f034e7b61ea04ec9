#include "tools/sluicec_report.h"

#include <fmt/format.h>

#include "compiler/api/ir.h"
#include "compiler/export/graph_dot.h"
#include "compiler/report/explain.h"

namespace sluice {
namespace {

moe::GraphOp graphOf(const Compiled& compiled) {
  return *compiled.graph->module.get().getOps<moe::GraphOp>().begin();
}

}  // namespace

std::string explanationOf(const Compiled& compiled, const std::string& kind) {
  const Explanation explanation = explain(compiled.program, graphOf(compiled), compiled.decisions);
  return kind == "json" ? printExplanationJson(*compiled.program, explanation)
                        : printExplanation(*compiled.program, explanation);
}

std::string dotOf(const Compiled& compiled) { return printDot(graphOf(compiled), *compiled.program); }

std::string timesOf(const Compiled& compiled) {
  std::string text;
  double all = 0;
  const auto line = [&](const std::string& phase, double seconds) {
    text += fmt::format("{:<18}{:>10.3f} ms\n", phase, seconds * 1e3);
  };
  for (const PhaseTime& time : compiled.times) {
    line(time.phase, time.seconds);
    all += time.seconds;
  }
  line("all", all);
  return text;
}

}  // namespace sluice

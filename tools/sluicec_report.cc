#include "tools/sluicec_report.h"

#include <fmt/format.h>

#include "compiler/analysis/in_place.h"
#include "compiler/api/ir.h"
#include "compiler/export/graph_dot.h"
#include "compiler/report/explain.h"
#include "compiler/report/kept_bytes.h"

namespace sluice {
namespace {

moe::GraphOp findGraph(const Compiled& compiled) {
  return *compiled.graph->module.get().getOps<moe::GraphOp>().begin();
}

// 6144 as "6,144".
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string rowsAndTokens(const KeptBytes& kept, const char* row, const char* token) {
  if (kept.token == 0) return grouped(kept.row) + row;
  return fmt::format("{}{} and {}{}", grouped(kept.row), row, grouped(kept.token), token);
}

}  // namespace

std::string formatExplanation(const Compiled& compiled, const std::string& kind) {
  const Explanation explanation = explain(compiled.program, findGraph(compiled), compiled.decisions);
  return kind == "json" ? printExplanationJson(*compiled.program, explanation)
                        : printExplanation(*compiled.program, explanation);
}

std::string formatDot(const Compiled& compiled) { return printDot(findGraph(compiled), *compiled.program); }

std::string keptText(const Compiled& compiled, const std::string& keep) {
  const bool keepsLittle = keep != "all";
  const moe::GraphOp op = findGraph(compiled);
  const bool inPlace = readsInPlace(*compiled.program);
  return fmt::format(
      "keeps {} ({}: {})\n", rowsAndTokens(keptBytes(op, inPlace), " bytes per row", " per token"),
      keepsLittle ? "all" : "minimal", rowsAndTokens(keptBytesOtherwise(op, keepsLittle, inPlace), "", ""));
}

std::string formatTimes(const Compiled& compiled) {
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

#include "compiler/report/numbers.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <utility>

#include "runtime/program/space_table.h"

namespace sluice {
namespace {

std::string scaled(double value, double step, std::span<const char* const> units) {
  size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", value, units[0]) : fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace

std::string formulaText(const Formula& formula) {
  std::string text;
  const auto add = [&](int64_t factor, const char* symbol) {
    if (factor != 0) text += fmt::format("{}{}{}", text.empty() ? "" : " + ", factor, symbol);
  };
  add(formula.rows, " R");
  add(formula.pairs, " P");
  add(formula.tokens, " T");
  add(formula.experts, " E");
  add(formula.fixed, "");
  return text.empty() ? "0" : text;
}

std::string balancedStepText(const TaskProgram& program) {
  const int64_t rows = balancedExtent(program, Extent::kRows),
                pairs = balancedExtent(program, Extent::kPairs);
  std::string text = fmt::format("T = {}, R = {}P = {}", program.maxTokens,
                                 rows == pairs ? "" : fmt::format("{}, ", rows), pairs);
  if (program.expertsDiffer()) text += fmt::format(", E = {}", program.maxExperts());
  return text;
}

std::string bytesText(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string flopsText(double flops) {
  constexpr std::array kUnits = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  return scaled(flops, 1000, kUnits);
}

}  // namespace sluice

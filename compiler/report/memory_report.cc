#include "compiler/report/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/report/numbers.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json figuresJson(const TaskProgram& program, const EntryMemory& memory) {
  return {{"planned", formulaJson(program, memory.planned)},
          {"peak", formulaJson(program, memory.peak)},
          {"over_peak", overPeak(program, memory)}};
}

}  // namespace

MemoryReport reportMemory(const TaskProgram& program) {
  MemoryReport report;
  const Lifetimes lifetimes(program);
  for (const Region& region : program.regions) {
    report.regions.push_back({sizeFormula(region.extent, region.stride), {}});
    report.all.planned += report.regions.back().bytes;
  }
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.region) {
      report.regions[buffer.region.value].buffers.push_back(BufferId{b});
    } else {
      (buffer.role == Role::kInput ? report.inputs : report.outputs) += sizeFormula(buffer);
    }
  }
  for (uint32_t e = 0; e < program.entries.size(); ++e) {
    EntryMemory& entry = report.entries.emplace_back();
    for (const RegionReport& region : report.regions)
      if (std::any_of(region.buffers.begin(), region.buffers.end(),
                      [&](BufferId b) { return lifetimes.isLive(b, EntryId{e}); }))
        entry.planned += region.bytes;
    entry.peak = peakOfEntry(program, lifetimes, EntryId{e});
  }
  report.all.peak = peakOfProgram(program, lifetimes);
  return report;
}

double overPeak(const TaskProgram& program, const EntryMemory& memory) {
  const double peak = inBalancedStep(program, memory.peak);
  return peak > 0 ? inBalancedStep(program, memory.planned) / peak : 1;
}

std::string printMemoryTotals(const TaskProgram& program, const MemoryReport& report,
                              const std::string& indent) {
  const auto with = [&](const Formula& bytes) {
    return fmt::format("{} ({})", formulaText(bytes), bytesText(inBalancedStep(program, bytes)));
  };
  const auto line = [&](const std::string& name, const EntryMemory& memory) {
    return fmt::format("{}{}: {}; peak of live bytes {}: {:.3f} of it\n", indent, name, with(memory.planned),
                       with(memory.peak), overPeak(program, memory));
  };
  std::string text = fmt::format(
      "{}bytes of the runtime with T tokens, R rows{} on a rank; in brackets a balanced step, "
      "{}\n",
      indent, program.expertsDiffer() ? ", P pairs and E experts" : " and P pairs",
      balancedStepText(program));
  for (size_t e = 0; e < report.entries.size(); ++e)
    text += line("entry " + program.entries[e].name, report.entries[e]);
  text += line("in all", report.all);
  text += fmt::format("{}the caller's: inputs {}, outputs {}\n", indent, with(report.inputs),
                      with(report.outputs));
  return text;
}

Json formulaJson(const TaskProgram& program, const Formula& formula) {
  Json json{{"fixed", formula.fixed}, {"T", formula.tokens}, {"R", formula.rows}, {"P", formula.pairs}};
  if (program.expertsDiffer()) json["E"] = formula.experts;
  json["balanced"] = inBalancedStep(program, formula);
  return json;
}

Json memoryJson(const TaskProgram& program, const MemoryReport& report) {
  Json json = Json::object();
  json["entries"] = Json::array();
  for (size_t e = 0; e < report.entries.size(); ++e) {
    Json entry = figuresJson(program, report.entries[e]);
    entry["name"] = program.entries[e].name;
    json["entries"].push_back(std::move(entry));
  }
  json["all"] = figuresJson(program, report.all);
  json["inputs"] = formulaJson(program, report.inputs);
  json["outputs"] = formulaJson(program, report.outputs);
  json["regions"] = Json::array();
  for (size_t r = 0; r < report.regions.size(); ++r) {
    Json names = Json::array(), offsets = Json::array();
    for (BufferId b : report.regions[r].buffers) {
      names.push_back(program.at(b).name);
      offsets.push_back(program.at(b).offset);
    }
    json["regions"].push_back(Json{{"name", program.regions[r].name},
                                   {"bytes", formulaJson(program, report.regions[r].bytes)},
                                   {"buffers", std::move(names)},
                                   {"offsets", std::move(offsets)}});
  }
  return json;
}

}  // namespace sluice

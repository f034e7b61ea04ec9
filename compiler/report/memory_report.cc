#include "compiler/report/memory_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/report/numbers.h"

namespace sluice {
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

}  // namespace sluice

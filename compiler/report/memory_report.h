// How much memory a program needs, before anything runs: by region, by entry and in total, as formulas, with
// the least that any plan could need (the peak of live bytes, analysis/memory.h).
//
// Value types and free functions. Programs passed verify().
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compiler/analysis/memory.h"
#include "runtime/program/program.h"

namespace sluice {

struct RegionReport {
  Formula bytes;
  std::vector<BufferId> buffers;
};

struct EntryMemory {
  Formula planned;  // of the regions that have a buffer live in the entry
  Formula peak;
};

struct MemoryReport {
  std::vector<RegionReport> regions;  // by RegionId
  std::vector<EntryMemory> entries;   // by EntryId
  EntryMemory all;
  Formula inputs;   // the caller's memory
  Formula outputs;  // likewise
};

MemoryReport reportMemory(const TaskProgram& program);

// Planned bytes over peak in a balanced step with max_tokens; 1 if no bytes are needed.
double overPeak(const TaskProgram& program, const EntryMemory& memory);

// Lines for people, each with `indent` before it: totals by entry, over all entries, and of the caller's
// tensors.
std::string printMemoryTotals(const TaskProgram& program, const MemoryReport& report,
                              const std::string& indent);

// Figures as JSON: {"fixed", "T", "R", "P"}, and "E" if ranks own different numbers of experts: the factors,
// and "balanced": the value in a balanced step with max_tokens.
nlohmann::ordered_json formulaJson(const TaskProgram& program, const Formula& formula);

nlohmann::ordered_json memoryJson(const TaskProgram& program, const MemoryReport& report);

}  // namespace sluice

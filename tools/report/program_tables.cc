// The tables of a program.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/report/numbers.h"
#include "runtime/program/space_table.h"
#include "runtime/program/text_names.h"
#include "runtime/program/words.h"
#include "tools/report/tables.h"

namespace sluice::tools {
namespace {

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

ReportTable familyTable(const TaskProgram& program) {
  ReportTable table{"program-families",
                    "Families of the program",
                    "Tasks of a family differ in slot and tile.",
                    {{"family", false},
                     {"op", false},
                     {"space", false},
                     {"cores", false},
                     {"tiles"},
                     {"waits for", false},
                     {"signals", false}},
                    {}};
  const auto names = [&](const std::vector<EventId>& events) {
    std::vector<std::string> all;
    for (const EventId event : events) all.push_back(program.at(event).name);
    return joined(all);
  };
  for (const Family& family : program.families)
    table.rows.push_back({text::nameInEntry(program, family), text::word(family.op),
                          text::word(program.at(family.space).kind), text::word(family.core), family.tiles,
                          names(family.waits), names(family.signals)});
  return table;
}

ReportTable laneTable(const TaskProgram& program) {
  ReportTable table{"lanes",
                    "Lanes",
                    "In-order lists of tasks; a worker tries the smallest priority first.",
                    {{"lane", false},
                     {"space", false},
                     {"cores", false},
                     {"first core"},
                     {"seats"},
                     {"priority"},
                     {"tasks per window"},
                     {"families", false}},
                    {}};
  for (const Lane& lane : program.lanes) {
    std::vector<std::string> families;
    size_t tasks = 0;
    for (const auto& seat : lane.seats) {
      tasks += seat.size();
      for (const TaskRecord& record : seat)
        if (const std::string& name = program.at(record.family).name;
            std::ranges::find(families, name) == families.end())
          families.push_back(name);
    }
    table.rows.push_back({text::nameInEntry(program, lane), text::word(program.at(lane.space).kind),
                          text::word(lane.core), lane.firstCore, lane.seats.size(), lane.priority, tasks,
                          joined(families)});
  }
  return table;
}

ReportTable eventTable(const TaskProgram& program) {
  ReportTable table{"events",
                    "Events",
                    "Arrays of counters; an event is complete at its threshold.",
                    {{"event", false},
                     {"one per", false},
                     {"counts", false},
                     {"threshold", false},
                     {"signalled by", false},
                     {"producers", false},
                     {"waiting", false}},
                    {}};
  for (uint32_t e = 0; e < program.events.size(); ++e) {
    const EventArray& event = program.events[e];
    std::vector<std::string> producers, waiting;
    for (const Family& family : program.families) {
      if (std::ranges::find(family.signals, EventId{e}) != family.signals.end())
        producers.push_back(family.name);
      if (std::ranges::find(family.waits, EventId{e}) != family.waits.end()) waiting.push_back(family.name);
    }
    const std::string threshold = event.rule == ThresholdRule::kConstant ? std::to_string(event.factor)
                                  : hasFactor(event.rule)
                                      ? fmt::format("{} x {}", event.factor, text::word(event.rule))
                                      : text::word(event.rule);
    table.rows.push_back({text::nameInEntry(program, event), text::word(event.space), text::word(event.unit),
                          threshold, event.remote ? "other ranks, too" : "this rank", joined(producers),
                          joined(waiting)});
  }
  return table;
}

ReportTable bufferTable(const TaskProgram& program) {
  ReportTable table{
      "buffers",
      "Buffers",
      fmt::format("Bytes of a step with {}.", balancedStepText(program)),
      {{"buffer", false}, {"role", false}, {"type", false}, {"shape", false}, {"region", false}, {"bytes"}},
      {}};
  for (const Buffer& buffer : program.buffers) {
    table.rows.push_back({buffer.name, text::word(buffer.role), text::word(buffer.type), shapeText(buffer),
                          buffer.region ? program.at(buffer.region).name : "of the caller",
                          inBalancedStep(program, sizeFormula(buffer))});
  }
  return table;
}

}  // namespace

std::string shapeText(const Buffer& buffer) {
  std::vector<std::string> dims;
  for (const Dim& dim : buffer.shape) dims.push_back(text::word(dim));
  return fmt::format("{}", fmt::join(dims, " x "));
}

std::vector<ReportTable> programTables(const TaskProgram& program) {
  return {familyTable(program), laneTable(program), eventTable(program), bufferTable(program)};
}

}  // namespace sluice::tools

#include "compiler/report/memory_json.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json figuresJson(const TaskProgram& program, const EntryMemory& memory) {
  return {{"planned", formulaJson(program, memory.planned)},
          {"peak", formulaJson(program, memory.peak)},
          {"over_peak", overPeak(program, memory)}};
}

}  // namespace

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

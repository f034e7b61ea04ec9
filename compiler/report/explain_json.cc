// An explanation for tools.
#include <nlohmann/json.hpp>

#include "compiler/report/explain.h"
#include "compiler/report/memory_report.h"
#include "runtime/program/space_table.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json eventsJson(const TaskProgram& program, const std::vector<EventExplanation>& events) {
  Json list = Json::array();
  for (const EventExplanation& event : events) {
    Json json{{"event", program.at(event.event).name}};
    if (!event.when.empty()) json["when"] = event.when;
    json["why"] = event.why;
    list.push_back(std::move(json));
  }
  return list;
}

Json familyJson(const TaskProgram& program, const FamilyExplanation& explanation) {
  const Family& family = program.at(explanation.family);
  const Space& space = program.at(family.space);
  const auto figure = [&](const Formula& formula) { return formulaJson(program, formula); };
  Json shards = Json::object();  // what a rank has of each operand
  for (const auto* operands : {&family.reads, &family.writes})
    for (BufferId id : *operands)
      if (id) shards[program.at(id).name] = text::word(program.at(id).sharding);
  return {{"entry", program.at(family.entry).name},
          {"family", family.name},
          {"op", text::word(family.op)},
          {"source", family.source},
          {"space", text::word(space.kind)},
          {"slot_size", space.slotSize},
          {"window", space.window},
          {"tiles", family.tiles},
          {"tasks_in_window", explanation.tasksInWindow},
          {"tasks_in_balanced_step", explanation.tasksInStep},
          {"cores", explanation.busyCores},
          {"core_kind", text::word(family.core)},
          {"lane_cores", explanation.cores},
          {"first_core", explanation.firstCore},
          {"segment", explanation.order.segment},
          {"stage", explanation.order.stage},
          {"priority", explanation.priority},
          {"shards", std::move(shards)},
          {"why", explanation.why},
          {"waits", eventsJson(program, explanation.waits)},
          {"signals", eventsJson(program, explanation.signals)},
          {"bytes_read", figure(explanation.work.read)},
          {"bytes_written", figure(explanation.work.written)},
          {"flops", figure(explanation.work.flops)}};
}

}  // namespace

std::string printExplanationJson(const TaskProgram& program, const Explanation& explanation) {
  const int32_t ranks = program.mesh.peers();
  Json json{{"name", program.name},
            {"target", program.target},
            {"options", program.options},
            {"ranks", ranks},
            {"tp", program.mesh.tp},
            {"tokens", text::word(program.mesh.tokens)},
            {"experts", program.experts},
            {"top_k", program.topK},
            {"cores", program.cores},
            {"cube_cores", program.cubeCores},
            {"vector_cores", program.vectorCores}};
  json["balanced_step"] = {{"T", program.maxTokens},
                           {"R", balancedExtent(program, Extent::kRows)},
                           {"P", balancedExtent(program, Extent::kPairs)}};
  if (program.expertsDiffer()) json["balanced_step"]["E"] = program.maxExperts();
  json["decisions"] = Json::array();
  for (const Decision& decision : explanation.decisions)
    json["decisions"].push_back(Json{{"what", decision.what}, {"why", decision.why}});
  json["families"] = Json::array();
  for (const FamilyExplanation& family : explanation.families)
    json["families"].push_back(familyJson(program, family));
  json["memory"] = memoryJson(program, explanation.memory);
  for (size_t r = 0; r < explanation.sharing.size(); ++r)
    json["memory"]["regions"][r]["shared"] = explanation.sharing[r];
  // Names of files may be no UTF-8, or move a cursor.
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice

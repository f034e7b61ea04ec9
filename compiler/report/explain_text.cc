// An explanation for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/report/explain.h"
#include "compiler/report/numbers.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

// "reads  " and the like: the title of a line.
std::string line(std::string_view about, const std::string& text) {
  return fmt::format("    {:<9} {}\n", about, text);
}

std::string bytesIn(const TaskProgram& program, const Formula& bytes) {
  return fmt::format("{} bytes ({})", formulaText(bytes), bytesText(inBalancedStep(program, bytes)));
}

std::string eventLine(const TaskProgram& program, const EventExplanation& event) {
  std::string text = fmt::format("'{}'", program.at(event.event).name);
  if (!event.when.empty()) text += " " + event.when;
  if (!event.why.empty()) text += fmt::format(": {}", fmt::join(event.why, "; "));
  return text;
}

// "8 cores", "40 vector cores from 8 on": the cores of the family's lane.
std::string coresText(const TaskProgram& program, const FamilyExplanation& explanation) {
  const CoreKind kind = program.at(explanation.family).core;
  return fmt::format("{}{} cores{}", explanation.cores,
                     kind == CoreKind::kUnified ? "" : " " + text::word(kind),
                     explanation.firstCore == 0 ? "" : fmt::format(" from {} on", explanation.firstCore));
}

// "'rows_x' whole, 'gate_up_weight' gate_up_columns": what a rank has of each operand.
std::string shardsText(const TaskProgram& program, const std::vector<BufferId>& operands) {
  std::string text;
  for (BufferId id : operands)
    if (id)
      text += fmt::format("{}'{}' {}", text.empty() ? "" : ", ", program.at(id).name,
                          text::word(program.at(id).sharding));
  return text;
}

std::string meshText(const Mesh& mesh) {
  if (mesh.tp == 1) return {};
  return fmt::format(" ({} group{} of {} that share experts, with {})", mesh.ep, mesh.ep == 1 ? "" : "s",
                     mesh.tp, mesh.tokens == TokenHolders::kOwn ? "tokens of their own" : "the same tokens");
}

std::string familyText(const TaskProgram& program, const FamilyExplanation& explanation) {
  const Family& family = program.at(explanation.family);
  const Space& space = program.at(family.space);
  std::string text =
      fmt::format("\n  {}: {} over {}{}{}\n", family.name, text::word(family.op), text::word(space.kind),
                  family.source.empty() ? "" : ", from ", family.source);
  text +=
      line("tasks", fmt::format("{} slots x {} tiles = {} a window, on {} of {}; {} in a balanced step",
                                space.window, family.tiles, explanation.tasksInWindow, explanation.busyCores,
                                coresText(program, explanation), explanation.tasksInStep));
  text +=
      line("order", fmt::format("segment {}, stage {}; its lane has priority {}", explanation.order.segment,
                                explanation.order.stage, explanation.priority));
  bool first = true;
  for (const std::string& why : explanation.why) {
    text += line(first ? "why" : "", why);
    first = false;
  }
  for (const EventExplanation& wait : explanation.waits) text += line("waits for", eventLine(program, wait));
  if (explanation.waits.empty()) text += line("waits for", "nothing");
  for (const EventExplanation& signal : explanation.signals)
    text += line("signals", eventLine(program, signal));
  if (program.mesh.tp > 1)
    text += line("shards", fmt::format("{} -> {}", shardsText(program, family.reads),
                                       shardsText(program, family.writes)));
  text += line("reads", bytesIn(program, explanation.work.read));
  text += line("writes", bytesIn(program, explanation.work.written));
  const Formula& flops = explanation.work.flops;
  if (flops == Formula{}) return text;
  return text + line("computes", fmt::format("{} FLOP ({})", formulaText(flops),
                                             flopsText(inBalancedStep(program, flops))));
}

std::string placeText(const Buffer& buffer) {
  return buffer.offset == 0 ? buffer.name : fmt::format("{} (at {})", buffer.name, buffer.offset);
}

std::string memoryText(const TaskProgram& program, const Explanation& explanation) {
  std::string text = "\nmemory\n" + printMemoryTotals(program, explanation.memory, "  ");
  for (size_t r = 0; r < program.regions.size(); ++r) {
    const Region& region = program.regions[r];
    std::vector<std::string> names;
    for (BufferId b : explanation.memory.regions[r].buffers) names.push_back(placeText(program.at(b)));
    text += fmt::format("\n  region {}: {}{}{}\n", region.name,
                        bytesIn(program, explanation.memory.regions[r].bytes), region.saved ? ", saved" : "",
                        region.symmetric ? ", other ranks write it" : "");
    text += line("holds", fmt::format("{}", fmt::join(names, ", ")));
    bool first = true;
    for (const std::string& why : explanation.sharing[r]) {
      text += line(first ? "shared" : "", why);
      first = false;
    }
  }
  return text;
}

}  // namespace

std::string printExplanation(const TaskProgram& program, const Explanation& explanation) {
  std::string text = fmt::format(
      "{} for target {}: {} ranks{}, {} experts, top {}, at most {} tokens per rank\n"
      "formulas have T tokens, R rows{} of a rank; a balanced step has {}\n"
      "an operand counts once in bytes read and written, however many tasks read it\n",
      program.name, program.target, program.mesh.peers(), meshText(program.mesh), program.experts,
      program.topK, program.maxTokens, program.expertsDiffer() ? ", P pairs and E experts" : " and P pairs",
      balancedStepText(program));
  if (!explanation.decisions.empty()) text += "\ndecisions\n";
  for (const Decision& decision : explanation.decisions)
    text += fmt::format("  {}: {}\n", decision.what, decision.why);
  EntryId entry;
  for (const FamilyExplanation& family : explanation.families) {
    if (program.at(family.family).entry != entry)
      text += fmt::format("\nentry {}\n", program.at(program.at(family.family).entry).name);
    entry = program.at(family.family).entry;
    text += familyText(program, family);
  }
  return text + memoryText(program, explanation);
}

}  // namespace sluice

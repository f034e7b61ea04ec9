#include "compiler/analysis/reference_plan_text.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using NamedSize = std::pair<const char*, int64_t>;

std::array<NamedSize, 5> givenSizes(const ReferenceSizes& sizes) {
  return {{{"tp", sizes.tp},
           {"ep", sizes.ep},
           {"seq_size", sizes.seqSize},
           {"all_expert_num", sizes.allExpertNum},
           {"top_k", sizes.topK}}};
}

std::array<NamedSize, 5> derivedSizes(const ReferenceSizes& sizes) {
  return {{{"single_rank_expert_num", sizes.singleRankExpertNum},
           {"seq_all", sizes.seqAll},
           {"per_rank_seq", sizes.perRankSeq},
           {"per_expert_seq", sizes.perExpertSeq},
           {"per_expert_seq_to_other", sizes.perExpertSeqToOther}}};
}

const char* coreName(CoreKind core) { return core == CoreKind::kCube ? "cube" : "vector"; }

std::string taskName(const PlannedEntry& entry, PlannedTask task) {
  if (task.node == PlannedTask::kTerminate) return "terminate";
  const PlannedNode& node = entry.nodes[task.node];
  return fmt::format("{}[{},{}]", node.name, task.index / node.parts, task.index % node.parts);
}

std::string list(std::span<const NamedSize> sizes) {
  std::string text;
  for (const auto& [name, value] : sizes)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

std::string list(const ReferencePlan::Slots& slots) {
  std::string text;
  for (const auto& [name, slot] : slots) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, slot);
  return text.empty() ? "none" : text;
}

std::string nodeLine(const PlannedEntry& entry, const PlannedNode& node) {
  std::string text = fmt::format("  {}", node.name);
  if (!node.alias.empty() && node.alias != node.name) text += fmt::format(" ({})", node.alias);
  text += fmt::format(": {} {}, {}", node.tasks(), node.tasks() == 1 ? "task" : "tasks", coreName(node.core));
  if (node.split)
    text += fmt::format(", {} experts x {} parts, {} rows a tile", node.experts, node.parts, node.rows);
  else
    text += ", not split";
  text += node.tiling ? fmt::format(", tiling slot {}", *node.tiling) : std::string(", no tiling slot");
  text += fmt::format("; slots {} -> {}", list(node.inputs), list(node.outputs));
  std::string waits;
  for (const uint32_t other : node.waitsFor) waits += (waits.empty() ? "" : ", ") + entry.nodes[other].name;
  if (!waits.empty()) text += "; after " + waits;
  return text + "\n";
}

std::string queueLines(const PlannedEntry& entry, const PlannedQueue& queue) {
  const char* kind = coreName(queue.core);
  std::string text = fmt::format("  {} queue: {} tasks on {} cores\n", kind, queue.tasks.size(), queue.cores);
  for (int32_t core = 0; core < queue.cores; ++core) {
    text += fmt::format("    {} {}:", kind, core);
    for (const PlannedTask task : tasksOfCore(queue, core)) text += " " + taskName(entry, task);
    text += "\n";
  }
  return text;
}

Json slotsJson(const ReferencePlan::Slots& slots) {
  Json json = Json::object();
  for (const auto& [name, slot] : slots) json[name] = slot;
  return json;
}

Json nodeJson(const PlannedEntry& entry, const PlannedNode& node) {
  Json json = {{"name", node.name}, {"alias", node.alias}, {"core", coreName(node.core)}};
  json["tasks"] = node.tasks();
  json["split"] = node.split;
  json["experts"] = node.experts;
  json["parts"] = node.parts;
  json["rows"] = node.rows;
  json["inputs"] = slotsJson(node.inputs);
  json["outputs"] = slotsJson(node.outputs);
  json["tiling"] = node.tiling ? Json(*node.tiling) : Json();
  json["after"] = Json::array();
  for (const uint32_t other : node.waitsFor) json["after"].push_back(entry.nodes[other].name);
  return json;
}

Json queueJson(const PlannedEntry& entry, const PlannedQueue& queue) {
  Json json = {{"core", coreName(queue.core)}, {"tasks", queue.tasks.size()}, {"cores", Json::array()}};
  for (int32_t core = 0; core < queue.cores; ++core) {
    Json tasks = Json::array();
    for (const PlannedTask task : tasksOfCore(queue, core)) tasks.push_back(taskName(entry, task));
    json["cores"].push_back(std::move(tasks));
  }
  return json;
}

}  // namespace

std::string printPlan(const StaticPlan& plan) {
  std::string text =
      fmt::format("reference plan of {}, rank {} of {}\n", plan.graph, plan.rank, plan.sizes.ep);
  text += list(givenSizes(plan.sizes)) + "\n" + list(derivedSizes(plan.sizes)) + "\n";
  for (const PlannedEntry& entry : plan.entries) {
    text += fmt::format("entry {}: {} tasks{}, {} parameter slots\n", entry.name, entry.tasks(),
                        entry.terminates ? " with terminate" : "", parameterSlots(entry));
    for (const PlannedNode& node : entry.nodes) text += nodeLine(entry, node);
    text += queueLines(entry, entry.cube) + queueLines(entry, entry.vector);
  }
  return text;
}

std::string printPlanJson(const StaticPlan& plan) {
  Json json = {{"policy", "reference"}, {"graph", plan.graph}, {"rank", plan.rank}};
  for (const auto& [name, value] : givenSizes(plan.sizes)) json["sizes"][name] = value;
  for (const auto& [name, value] : derivedSizes(plan.sizes)) json["sizes"][name] = value;
  json["entries"] = Json::array();
  for (const PlannedEntry& entry : plan.entries) {
    Json printed = {{"name", entry.name}, {"tasks", entry.tasks()}, {"terminate", entry.terminates}};
    printed["parameter_slots"] = parameterSlots(entry);
    printed["nodes"] = Json::array();
    for (const PlannedNode& node : entry.nodes) printed["nodes"].push_back(nodeJson(entry, node));
    printed["queues"] = {queueJson(entry, entry.cube), queueJson(entry, entry.vector)};
    json["entries"].push_back(std::move(printed));
  }
  return json.dump(1) + "\n";
}

}  // namespace sluice

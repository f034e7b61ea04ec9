#include <nlohmann/json.hpp>

#include "runtime/program/words.h"
#include "tools/simulate/report.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

Json simFamiliesJson(const TaskProgram& program, const SimResult& result) {
  Json families = Json::array();
  for (size_t f = 0; f < result.families.size(); ++f) {
    const SimFamily& family = result.families[f];
    if (family.tasks == 0) continue;
    families.push_back({{"name", program.families[f].name},
                        {"tasks", family.tasks},
                        {"empty_tasks", family.empty},
                        {"seconds", toSeconds(family.busy)},
                        {"first_start", toSeconds(family.firstStart)},
                        {"last_end", toSeconds(family.lastEnd)}});
  }
  return families;
}

Json simRanksJson(const TaskProgram& program, const SimResult& result) {
  Json ranks = Json::array();
  for (const SimRankTimes& rank : result.ranks) {
    Json busy = Json::object();
    for (const CoreKind kind : {CoreKind::kUnified, CoreKind::kCube, CoreKind::kVector})
      if (program.coreCount(kind) > 0)
        busy[std::string(text::word(kind))] = toSeconds(rank.busy[static_cast<size_t>(kind)]);
    Json waits = Json::array();
    for (const SimWait& wait : rank.waits)
      waits.push_back({{"event", wait.event ? program.at(wait.event).name : ""},
                       {"family", program.at(wait.family).name},
                       {"waits", wait.waits},
                       {"seconds", toSeconds(wait.time)}});
    ranks.push_back({{"end", toSeconds(rank.end)},
                     {"tasks", rank.tasks},
                     {"rows", rank.rows},
                     {"busy", std::move(busy)},
                     {"products", toSeconds(rank.products)},
                     {"arrival", toSeconds(rank.arrival)},
                     {"producer", toSeconds(rank.producer)},
                     {"idle", toSeconds(rank.idle)},
                     {"communication", toSeconds(rank.outstanding)},
                     {"exposed", toSeconds(rank.exposed)},
                     {"sent_bytes", rank.sent},
                     {"messages", rank.messages},
                     {"waits", std::move(waits)}});
  }
  return ranks;
}

}  // namespace

std::string simulationJson(const TaskProgram& program, const SimDevice& device,
                           const std::vector<SimResult>& results) {
  Json entries = Json::array();
  for (const SimResult& result : results)
    entries.push_back({{"name", program.at(result.entry).name},
                       {"seconds", toSeconds(result.end)},
                       {"tasks", result.tasks},
                       {"moments", result.moments},
                       {"max_over_mean_rows", rowSkew(result)},
                       {"slowest_rank", slowestRank(result)},
                       {"families", simFamiliesJson(program, result)},
                       {"ranks", simRanksJson(program, result)}});
  const Json root = {{"program", program.name},
                     {"target", device.name},
                     {"workers", device.workers},
                     {"entries", std::move(entries)}};
  // names come from a file and may be any bytes
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice::tools

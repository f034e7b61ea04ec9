#include "tools/overlap/overlap_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kNames = {"all", "communication", "compute"};  // by WorkKind

constexpr std::pair<const char*, int64_t CommStats::*> kStats[] = {{"puts", &CommStats::puts},
                                                                   {"put_bytes", &CommStats::putBytes},
                                                                   {"signals", &CommStats::signals},
                                                                   {"flushes", &CommStats::flushes},
                                                                   {"messages", &CommStats::messages}};

template <class Value>
Json samplesJson(const EntryOverlap& overlap, const Value& value) {
  Json json = Json::array();
  for (const EntrySample& sample : overlap.samples) json.push_back(value(sample));
  return json;
}

}  // namespace

std::span<const Column> overlapColumns() {
  static constexpr Column kColumns[] = {{"T ms", 10},    {"Tcomm", 10},    {"Tcompute", 10}, {"overlap", 9},
                                        {"rows", 9},     {"MB sent", 10},  {"orders", 9},    {"puts", 9},
                                        {"signals", 9},  {"messages", 10}, {"flushes", 9},   {"cpu ms", 10},
                                        {"switches", 10}};
  return kColumns;
}

std::vector<std::string> overlapCells(const EntryOverlap& overlap, int cpuUnits) {
  const OverlapFigures f = computeFigures(overlap, cpuUnits);
  const EntrySample last = overlap.samples.empty() ? EntrySample{} : overlap.samples.back();
  const auto milli = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e3); };
  const auto count = [](auto number) { return fmt::format("{}", number); };
  return {milli(f.all),
          milli(f.communication),
          milli(f.compute),
          fmt::format("{:.2f}", f.efficiency),
          count(last.rows),
          fmt::format("{:.2f}", static_cast<double>(last.traffic.bytes) * 1e-6),
          count(last.traffic.pieces + last.traffic.signals),
          count(f.puts),
          count(f.signals),
          count(f.messages),
          count(f.flushes),
          milli(f.cpu),
          count(f.switches)};
}

Json overlapJson(const EntryOverlap& overlap, int cpuUnits) {
  const OverlapFigures f = computeFigures(overlap, cpuUnits);
  const EntrySample last = overlap.samples.empty() ? EntrySample{} : overlap.samples.back();
  Json json = {{"entry", overlap.entry},
               {"seconds", {{"all", f.all}, {"communication", f.communication}, {"compute", f.compute}}},
               {"overlap", f.efficiency},
               {"rows", last.rows},
               {"bytes", last.traffic.bytes},
               {"pieces", last.traffic.pieces},
               {"signals", last.traffic.signals}};
  for (const auto& [name, field] : kStats)
    json["transport"][name] =
        samplesJson(overlap, [field = field](const EntrySample& s) { return s.stats.*field; });
  for (size_t i = 0; i < kNames.size(); ++i) {
    json["wall_seconds"][kNames[i]] = samplesJson(overlap, [i](const EntrySample& s) { return s.wall[i]; });
    json["cpu_seconds"][kNames[i]] = samplesJson(overlap, [i](const EntrySample& s) { return s.cpu[i]; });
    json["switches"][kNames[i]] = samplesJson(overlap, [i](const EntrySample& s) { return s.switches[i]; });
  }
  return json;
}

Expected<EntryOverlap> overlapFromJson(const Json& json) {
  // the only code that uses the library's exceptions, because all of them mean the same
  try {
    EntryOverlap overlap{json.at("entry").get<std::string>(), {}};
    const size_t repetitions = json.at("wall_seconds").at("all").size();
    for (size_t n = 0; n < repetitions; ++n) {
      EntrySample sample;
      sample.rows = json.at("rows").get<int64_t>();
      sample.traffic = {json.at("pieces").get<int64_t>(), json.at("bytes").get<int64_t>(),
                        json.at("signals").get<int64_t>()};
      for (const auto& [name, field] : kStats)
        sample.stats.*field = json.at("transport").at(name).at(n).get<int64_t>();
      for (size_t i = 0; i < kNames.size(); ++i) {
        sample.wall[i] = json.at("wall_seconds").at(kNames[i]).at(n).get<double>();
        sample.cpu[i] = json.at("cpu_seconds").at(kNames[i]).at(n).get<double>();
        sample.switches[i] = json.at("switches").at(kNames[i]).at(n).get<int64_t>();
      }
      overlap.samples.push_back(sample);
    }
    return overlap;
  } catch (const nlohmann::json::exception& error) {
    return Error{fmt::format("found no figures of an overlap: {}", error.what())};
  }
}

}  // namespace sluice::tools

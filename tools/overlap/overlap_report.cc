#include "tools/overlap/overlap_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kNames = {"all", "communication", "compute"};  // by WorkKind

template <class Value>
Json samplesJson(const EntryOverlap& overlap, const Value& value) {
  Json json = Json::array();
  for (const EntrySample& sample : overlap.samples) json.push_back(value(sample));
  return json;
}

}  // namespace

std::string overlapHeads() {
  return fmt::format("{:>10}{:>10}{:>10}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}{:>10}{:>9}{:>10}{:>10}", "T ms",
                     "Tcomm", "Tcompute", "overlap", "rows", "MB sent", "orders", "puts", "signals",
                     "messages", "flushes", "cpu ms", "switches");
}

std::string overlapLine(const EntryOverlap& overlap, int cpuUnits) {
  const OverlapFigures f = figuresOf(overlap, cpuUnits);
  const EntrySample last = overlap.samples.empty() ? EntrySample{} : overlap.samples.back();
  return fmt::format(
      "{:>10.3f}{:>10.3f}{:>10.3f}{:>9.2f}{:>9}{:>10.2f}{:>9}{:>9}{:>9}{:>10}{:>9}{:>10.3f}{:>10}",
      f.all * 1e3, f.communication * 1e3, f.compute * 1e3, f.efficiency, last.rows,
      static_cast<double>(last.traffic.bytes) * 1e-6, last.traffic.pieces + last.traffic.signals, f.puts,
      f.signals, f.messages, f.flushes, f.cpu * 1e3, f.switches);
}

Json overlapJson(const EntryOverlap& overlap, int cpuUnits) {
  const OverlapFigures f = figuresOf(overlap, cpuUnits);
  const EntrySample last = overlap.samples.empty() ? EntrySample{} : overlap.samples.back();
  Json json = {{"entry", overlap.entry},
               {"seconds", {{"all", f.all}, {"communication", f.communication}, {"compute", f.compute}}},
               {"overlap", f.efficiency},
               {"rows", last.rows},
               {"bytes", last.traffic.bytes},
               {"pieces", last.traffic.pieces},
               {"signals", last.traffic.signals}};
  const auto statsOf = [&](int64_t CommStats::* field) {
    return samplesJson(overlap, [field](const EntrySample& s) { return s.stats.*field; });
  };
  json["transport"] = {{"puts", statsOf(&CommStats::puts)},
                       {"put_bytes", statsOf(&CommStats::putBytes)},
                       {"signals", statsOf(&CommStats::signals)},
                       {"flushes", statsOf(&CommStats::flushes)},
                       {"messages", statsOf(&CommStats::messages)}};
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
      const Json& stats = json.at("transport");
      sample.stats = {stats.at("puts").at(n).get<int64_t>(), stats.at("put_bytes").at(n).get<int64_t>(),
                      stats.at("signals").at(n).get<int64_t>(), stats.at("flushes").at(n).get<int64_t>(),
                      stats.at("messages").at(n).get<int64_t>()};
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

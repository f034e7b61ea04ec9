#include <nlohmann/json.hpp>

#include "tools/bench/report.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

Json samplesJson(const Samples& samples) {
  Json wall = Json::array(), cpu = Json::array();
  for (const Duration& duration : samples.all) {
    wall.push_back(duration.wall);
    cpu.push_back(duration.cpu);
  }
  return {{"threads", samples.threads}, {"wall_seconds", wall}, {"cpu_seconds", cpu}};
}

Json probesJson(const std::vector<ProbeRates>& rates) {
  Json flops = Json::array(), read = Json::array(), stream = Json::array();
  for (const ProbeRates& rate : rates) {
    flops.push_back(rate.flops);
    read.push_back(rate.read);
    stream.push_back(rate.stream);
  }
  return {{"flops", flops}, {"read_bytes", read}, {"stream_bytes", stream}};
}

Json passJson(const CaseSamples& c, const PassSamples& pass, ClockKind clock) {
  const PassFigures f = computeFigures(c, pass, clock);
  Json json = {{"pass", passName(pass.pass)},
               {"flops", pass.work.flops},
               {"read_bytes", pass.work.readBytes},
               {"written_bytes", pass.work.writtenBytes},
               {"median_seconds", f.median},
               {"min_seconds", f.least},
               {"max_seconds", f.most},
               {"share_of_peak", f.shareOfPeak},
               {"share_of_read", f.shareOfRead},
               {"bound_seconds", f.bound},
               {"sluice", samplesJson(pass.sluice)}};
  if (pass.single) json["one_thread"] = samplesJson(*pass.single);
  if (pass.bare) json["products_alone"] = samplesJson(*pass.bare);
  for (const PeerSamples& peer : pass.peers) {
    Json samples = samplesJson(peer.samples);
    samples["name"] = peer.name;
    samples["version"] = peer.version;
    samples["mode"] = peer.mode;
    samples["difference"] = peer.difference;
    json["peers"].push_back(std::move(samples));
  }
  return json;
}

}  // namespace

std::string formatJson(const std::vector<CaseSamples>& all, const BenchOptions& options,
                       const Machine& machine) {
  Json cases = Json::array();
  for (const CaseSamples& c : all) {
    Json passes = Json::array();
    for (const PassSamples& pass : c.passes) passes.push_back(passJson(c, pass, options.clock));
    cases.push_back({{"name", c.name},
                     {"hidden", c.rows.hidden},
                     {"intermediate", c.rows.inter},
                     {"rows", c.rows.rows},
                     {"ranks", c.ranks},
                     {"whole_layer", c.whole},
                     {"probes_all_threads", probesJson(c.probesOfAll)},
                     {"probes_one_thread", probesJson(c.probesOfOne)},
                     {"passes", passes}});
  }
  const Json root = {{"cpu", machine.cpu},
                     {"isa", machine.isa},
                     {"threads", options.threads},
                     {"clock", options.clock == ClockKind::kWall ? "wall" : "cpu"},
                     {"weights", weightsName(options.weights)},
                     {"target", options.target},
                     {"cases", cases}};
  return root.dump(2) + "\n";
}

}  // namespace sluice::tools

#include "tools/bench/measure_gpu.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "runtime/api/context.h"
#include "tools/bench/gpu_contest.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {
namespace {

// The experts of rows that are sorted by expert; K is 1.
std::vector<int32_t> idsOf(const RowsCase& rows) {
  std::vector<int32_t> ids;
  for (size_t expert = 0; expert < rows.rows.size(); ++expert)
    ids.insert(ids.end(), static_cast<size_t>(rows.rows[expert]), static_cast<int32_t>(expert));
  return ids;
}

Expected<std::vector<int32_t>> idsOf(const TaskProgram& program, const LayerCase& layer) {
  const Expected<RoutingSpec> routing = parseRouting(layer.skew);
  if (!routing) return routing.error();
  const TensorMap inputs =
      makeRoutingInputs(program, {.tokens = {}, .routing = *routing, .seed = 1}, 0, layer.tokens);
  const Tensor& ids = inputs.at("expert_ids");
  return std::vector<int32_t>(ids.as<int32_t>(), ids.as<int32_t>() + ids.elements());
}

// One of those that take turns.
struct Contender {
  std::string what;
  std::function<Expected<StepSeconds>(Pass)> run;
  NamedPeer* peer = nullptr;  // null: Sluice
};

// What takes part in a case, in memory of the GPU.
struct Field {
  std::unique_ptr<GpuLayer> whole;  // if there is a layer
  std::unique_ptr<GpuLayer> products;
  std::vector<NamedPeer> peers;
  std::optional<GpuContest> contest;
  std::vector<Contender> contenders;
};

Status addLayer(std::string what, GpuLayer& layer, Field& field) {
  // gives a backward the saved tensors of a forward
  const Expected<StepSeconds> ran = layer.run(Pass::kForward);
  if (!ran) return Error{what + ": " + ran.error().message};
  field.contenders.push_back({std::move(what), [&layer](Pass pass) { return layer.run(pass); }});
  return {};
}

// Checks each peer; a pass that fails is told of, and not measured, nor is a backward whose forward failed.
void checkPeers(const GpuPlan& plan, Field& field, GpuSamples& samples) {
  for (Contender& contender : field.contenders)
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      if (contender.peer == nullptr || (pass == Pass::kBackward && !plan.backward)) continue;
      const auto verdict = field.contest->check(*contender.peer, pass);
      for (GpuPass& each : samples.passes)
        for (GpuLine& line : each.lines) {
          const bool isConcerned = each.pass == pass || (!verdict && pass == Pass::kForward);
          if (line.what != contender.what || !isConcerned) continue;
          if (!verdict) {
            line.error = verdict.error().message;
            continue;
          }
          line.difference = verdict->difference;
          line.note = verdict->note;
        }
      if (!verdict) break;
    }
}

Status repeatAll(const GpuPlan& plan, const Field& field, GpuSamples& samples) {
  for (int repetition = 0; repetition <= plan.repeat; ++repetition)
    for (size_t c = 0; c < field.contenders.size(); ++c)
      for (GpuPass& pass : samples.passes) {
        GpuLine& line = pass.lines[c];
        if (!line.error.empty()) continue;
        const Expected<StepSeconds> seconds = field.contenders[c].run(pass.pass);
        if (!seconds && field.contenders[c].peer == nullptr) return seconds.error();
        if (!seconds) {
          line.error = seconds.error().message;
          line.all.clear();
        } else if (repetition > 0) {  // the first one is not counted
          line.all.push_back(*seconds);
        }
      }
  return {};
}

Status addPeers(const GpuPlan& plan, const PeersOf& peersOf, GpuBackend& backend, Field& field,
                GpuSamples& samples) {
  auto peers = peersOf(backend);
  if (!peers) {
    samples.withoutPeers = peers.error().message;
    return {};
  }
  field.peers = std::move(*peers);
  auto contest = GpuContest::create(backend, samples.rows, *field.products, plan.backward);
  if (!contest) return contest.error();
  field.contest.emplace(std::move(*contest));
  for (NamedPeer& peer : field.peers)
    field.contenders.push_back(
        {peer.name, [&field, &peer](Pass pass) { return field.contest->run(peer, pass); }, &peer});
  return {};
}

}  // namespace

Expected<GpuSamples> measureOnGpu(const GpuCase& c, const GpuPrograms& programs, const GpuPlan& plan,
                                  const BackendMaker& backends, const PeersOf& peersOf) {
  LocalRanks alone(1);
  auto made = backends(alone.transport(0));
  if (!made) return made.error();
  const std::shared_ptr<GpuBackend> backend = std::move(*made);
  GpuSamples samples{.name = c.name, .rows = c.rows, .passes = {}, .withoutPeers = {}};
  const Expected<std::vector<int32_t>> ids =
      c.layer ? idsOf(programs.products.tables(), *c.layer) : Expected(idsOf(c.rows));
  if (!ids) return ids.error();
  if (c.layer) {
    samples.rows = {c.name, c.layer->hidden, c.layer->inter,
                    std::vector<int64_t>(static_cast<size_t>(c.layer->experts))};
    for (const int32_t id : *ids) ++samples.rows.rows[static_cast<size_t>(id)];
  }

  Field field;
  const int64_t rows = samples.rows.allRows();
  const auto add = [&](const char* what, const Program& program, std::unique_ptr<GpuLayer>& place) -> Status {
    auto layer = GpuLayer::create(program, *ids, rows, backend, alone.transport(0));
    if (!layer) return Error{fmt::format("{}: {}", what, layer.error().message)};
    place = std::move(*layer);
    return addLayer(what, *place, field);
  };
  Status ready = programs.whole ? add("whole layer", *programs.whole, field.whole) : Status();
  if (ready) ready = add("products", programs.products, field.products);
  if (ready) ready = addPeers(plan, peersOf, *backend, field, samples);
  if (!ready) return ready.error();
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    if (pass == Pass::kForward ? !plan.forward : !plan.backward) continue;
    GpuPass& empty = samples.passes.emplace_back(GpuPass{pass, countWork(samples.rows, pass), {}});
    for (const Contender& contender : field.contenders) empty.lines.push_back({.what = contender.what});
  }
  if (plan.backward)
    if (const auto ran = field.products->run(Pass::kBackward); !ran) return ran.error();
  checkPeers(plan, field, samples);
  if (Status done = repeatAll(plan, field, samples); !done) return done.error();
  return samples;
}

}  // namespace sluice::tools

#include "tools/bench/measure_case.h"

#include <fmt/format.h>

#include <functional>

#include "tools/bench/peer_contest.h"

namespace sluice::tools {
namespace {

// One of the things that are run in turn.
using Step = std::function<Expected<Duration>(Pass)>;

struct Contender {
  Step run;
  int threads = 1;
  std::function<Samples&(PassSamples&)> samples;
};

Samples& initialized(std::optional<Samples>& samples) {
  if (!samples) samples.emplace();
  return *samples;
}

// Runs all contenders in turn, forward and then backward, `repeat` times. The first run of each is not
// counted.
Status repeatAll(const std::vector<Contender>& contenders, MachineProbes& probes, const BenchOptions& options,
                 CaseSamples& result) {
  for (int repetition = 0; repetition <= options.repeat; ++repetition) {
    if (options.between) options.between(repetition + 1, options.repeat + 1);
    if (repetition > 0) {
      result.probesOfAll.push_back(probes.all());
      result.probesOfOne.push_back(probes.one());
    }
    for (const Contender& contender : contenders)
      for (PassSamples& pass : result.passes) {
        const Expected<Duration> duration = contender.run(pass.pass);
        if (!duration) return duration.error();
        if (repetition == 0) continue;
        Samples& samples = contender.samples(pass);
        samples.threads = contender.threads;
        samples.all.push_back(*duration);
      }
  }
  return {};
}

// The encodings, behind the name of a case.
std::string encodingWords(const BenchOptions& options) {
  const std::string text = printEncodings(options.encodings);
  return text.empty() ? text : ", " + text;
}

// Bytes of a number of a weight, with its part of a scale.
double weightBytes(const BenchOptions& options) {
  const Encoding& weights = *options.encodings.weights;
  const double ofBlock = static_cast<double>(dtypeBytes(weights.scale)) * (weights.zeros ? 2 : 1);
  const double scales = weights.along == 0 ? 0 : ofBlock / weights.along / weights.across;
  return numberBytes(weights.element) + scales;
}

// Whether the measured passes multiply with the unit of codes.
bool multipliesCodes(const BenchOptions& options) {
  const Encodings& encodings = options.encodings;
  const bool isBackward = options.backward && encodings.weights->hasCodes();
  return (isBackward ? encodings.grads : encodings.rows)->hasCodes();
}

CaseSamples emptyResult(const RowsCase& rows, const BenchOptions& options) {
  CaseSamples result;
  result.name = rows.name + encodingWords(options);
  result.rows = rows;
  for (Pass pass : {Pass::kForward, Pass::kBackward}) {
    if (pass == Pass::kForward ? !options.forward : !options.backward) continue;
    PassSamples samples;
    samples.pass = pass;
    samples.work = countWork(rows, pass, weightBytes(options), !options.encodings.weights->hasCodes());
    result.passes.push_back(std::move(samples));
  }
  return result;
}

// Gives a backward the saved tensors of a forward.
Status prepare(BenchLayer& layer) {
  const Expected<Duration> done = layer.run(Pass::kForward);
  return done ? Status{} : Status{done.error()};
}

}  // namespace

Expected<CaseSamples> measureRows(const RowsCase& c, const BenchOptions& options, ops::Isa isa) {
  Expected<Program> program = compileRows(c, options.threads, options);
  if (!program) return program.error();
  Expected<BenchTensors> tensors = makeRowsTensors(*program, c, options);
  if (!tensors) return tensors.error();
  auto layer = BenchLayer::create(*program, options.threads, options.weights, *tensors);
  if (!layer) return layer.error();
  if (Status ready = prepare(**layer); !ready) return ready.error();

  CaseSamples result = emptyResult(c, options);
  std::vector<Contender> contenders;
  contenders.push_back({[&](Pass pass) { return (*layer)->run(pass); }, options.threads,
                        [](PassSamples& pass) -> Samples& { return pass.sluice; }});
  std::vector<std::unique_ptr<PeerContest>> contests;
  for (const std::string& name : options.peers) {
    PeerContest& contest = *contests.emplace_back(std::make_unique<PeerContest>(name));
    if (Status held = contest.hold(options, c, **layer, tensors->front(), result); !held) return held.error();
    const size_t number = contests.size() - 1;
    contenders.push_back({[&contest](Pass pass) { return contest.run(pass); }, options.threads,
                          [number](PassSamples& pass) -> Samples& { return pass.peers[number].samples; }});
  }
  std::unique_ptr<BenchLayer> single;
  if (options.scaling && options.threads > 1) {
    Expected<Program> forOne = compileRows(c, 1, options);
    if (!forOne) return forOne.error();
    auto made = BenchLayer::create(*forOne, 1, options.weights, *tensors);
    if (!made) return made.error();
    single = std::move(*made);
    if (Status ready = prepare(*single); !ready) return ready.error();
    contenders.push_back({[&](Pass pass) { return single->run(pass); }, 1,
                          [](PassSamples& pass) -> Samples& { return initialized(pass.single); }});
  }
  auto probes = MachineProbes::create(isa, options.threads, options.clock, multipliesCodes(options));
  if (!probes) return probes.error();
  if (Status done = repeatAll(contenders, *probes, options, result); !done) return done.error();
  return result;
}

Expected<CaseSamples> measureLayer(const LayerCase& c, const BenchOptions& options, ops::Isa isa) {
  if (!options.peers.empty()) return Error{"a whole layer has no peer to compare with"};
  if (options.threads < c.ranks)
    return Error{fmt::format("{} ranks need as many threads, found {}", c.ranks, options.threads)};
  const int threads = options.threads / c.ranks;
  Expected<Program> program = compileLayer(c, threads, options);
  if (!program) return program.error();
  Expected<BenchTensors> tensors = makeLayerTensors(*program, c);
  if (!tensors) return tensors.error();
  auto layer = BenchLayer::create(*program, threads, options.weights, *tensors);
  if (!layer) return layer.error();
  Expected<Program> products = compileLayerRows(c, threads, options);
  if (!products) return products.error();
  BenchTensors rows = makeRowsOfLayer(*products, *tensors);
  auto bare = BenchLayer::create(*products, threads, options.weights, rows, &*tensors);
  if (!bare) return bare.error();
  for (BenchLayer* each : {layer->get(), bare->get()})
    if (Status ready = prepare(*each); !ready) return ready.error();

  CaseSamples result = emptyResult({c.name, c.hidden, c.inter, rowsOfExperts(*tensors, c.experts)}, options);
  result.ranks = c.ranks;
  result.whole = true;
  const int all = threads * c.ranks;
  const std::vector<Contender> contenders = {
      {[&](Pass pass) { return (*layer)->run(pass); }, all,
       [](PassSamples& pass) -> Samples& { return pass.sluice; }},
      {[&](Pass pass) { return (*bare)->run(pass); }, all,
       [](PassSamples& pass) -> Samples& { return initialized(pass.bare); }}};
  auto probes = MachineProbes::create(isa, all, options.clock);
  if (!probes) return probes.error();
  if (Status done = repeatAll(contenders, *probes, options, result); !done) return done.error();
  return result;
}

}  // namespace sluice::tools

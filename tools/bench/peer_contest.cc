#include "tools/bench/peer_contest.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

namespace sluice::tools {
namespace {

// Both sides round intermediate values to bf16; a larger difference means a wrong result.
constexpr double kMostDifference = 0.03;

constexpr int kTrials = 3;

std::string peerModeName(const PeerMode& mode) {
  return std::string(!mode.packed       ? "plain weights"
                     : mode.packsInPass ? "weights packed in each pass"
                                        : "packed weights") +
         (mode.expertsInParallel ? ", a thread per expert" : ", threads in products");
}

PeerResults makePeerResults(const RowsCase& c, bool backward) {
  const auto rows = static_cast<size_t>(c.allRows()), hidden = static_cast<size_t>(c.hidden);
  const auto inter = static_cast<size_t>(c.inter), weight = static_cast<size_t>(c.experts()) * hidden * inter;
  PeerResults results;
  results.gateUp.resize(rows * 2 * inter);
  results.act.resize(rows * inter);
  results.y.resize(rows * hidden);
  if (!backward) return results;
  results.actGrad.resize(rows * inter);
  results.gateUpGrad.resize(rows * 2 * inter);
  results.dx.resize(rows * hidden);
  results.gateUpWeightGrad.resize(2 * weight);
  results.downWeightGrad.resize(weight);
  return results;
}

float valueOf(BFloat16 x) { return toFloat(x); }
float valueOf(float x) { return x; }

template <class T>
double difference(const T* ours, std::span<const T> theirs) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    const double their = valueOf(theirs[i]), off = valueOf(ours[i]) - their;
    apart += off * off;
    size += their * their;
  }
  // a NaN must not look like agreement
  const double relative = std::sqrt(apart / std::max(size, 1e-30));
  return std::isfinite(relative) ? relative : HUGE_VAL;
}

Expected<Duration> timed(Peer& peer, Pass pass) {
  peer.startThreads();
  const Timer timer;
  const Status done = peer.run(pass);
  const Duration duration = timer.elapsed();
  peer.endThreads();
  if (!done) return done.error();
  return duration;
}

}  // namespace

Expected<Duration> PeerContest::run(Pass pass) { return timed(chosen(pass), pass); }

Status PeerContest::hold(const BenchOptions& options, const PeerInputs& inputs, BenchLayer& layer,
                         const TensorMap& own, CaseSamples& result) {
  inputs_ = inputs;
  results_ = makePeerResults(*inputs.rows, options.backward);
  if (Status done = chooseModes(options, result); !done) return done;
  return compare(layer, own, result);
}

Status PeerContest::chooseModes(const BenchOptions& options, CaseSamples& result) {
  std::array<double, 2> best{HUGE_VAL, HUGE_VAL};
  for (int mode = 0; mode < (options.threads > 1 ? 4 : 2); ++mode) {
    const PeerMode words{.packed = mode % 2 == 1,
                         .packsInPass = options.weights == Weights::kOrdinary,
                         .expertsInParallel = mode >= 2};
    Expected<std::unique_ptr<Peer>> made = makePeer(inputs_, words, options.backward, results_);
    if (!made) return made.error();
    const std::shared_ptr<Peer> peer = std::move(*made);
    // a backward needs the results of a forward; the first run of each is not counted
    if (Status ready = peer->run(Pass::kForward); !ready) return ready;
    for (PassSamples& pass : result.passes) {
      double least = HUGE_VAL;
      for (int trial = 0; trial < kTrials; ++trial) {
        const Expected<Duration> duration = timed(*peer, pass.pass);
        if (!duration) return duration.error();
        if (trial > 0) least = std::min(least, duration->seconds(options.clock, options.threads));
      }
      const auto p = static_cast<size_t>(pass.pass);
      if (least >= best[p]) continue;
      best[p] = least;
      chosen_[p] = peer;
      pass.peer = PeerSamples{peerModeName(words), {}, 0};
    }
  }
  return {};
}

Status PeerContest::compare(BenchLayer& layer, const TensorMap& own, CaseSamples& result) {
  for (PassSamples& pass : result.passes) {
    if (const Expected<Duration> done = layer.run(pass.pass); !done) return done.error();
    if (Status done = chosen(pass.pass).run(pass.pass); !done) return done;
    const bool forward = pass.pass == Pass::kForward;
    const Expected<TensorView> rows = layer.output(forward ? "y" : "dx");
    if (!rows) return rows.error();
    double& most = pass.peer->difference;
    most = difference<BFloat16>(static_cast<const BFloat16*>(rows->data), forward ? results_.y : results_.dx);
    if (!forward) {
      most = std::max(
          most, difference<float>(own.at("gate_up_weight_grad").as<float>(), results_.gateUpWeightGrad));
      most =
          std::max(most, difference<float>(own.at("down_weight_grad").as<float>(), results_.downWeightGrad));
    }
    if (most > kMostDifference)
      return Error{fmt::format("{} of case {}: {} differs from Sluice by {:.2g}, expected at most {}",
                               passName(pass.pass), result.name, peerVersion(), most, kMostDifference)};
  }
  return {};
}

}  // namespace sluice::tools

#include "tools/bench/peer_contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::tools {
namespace {

// Sluice rounds intermediate values to bf16; a larger difference means a wrong result.
constexpr double kMaxDifference = 0.03;

constexpr int kTrials = 3;

std::string peerModeName(const PeerMode& mode) {
  return std::string(!mode.packed       ? "plain weights"
                     : mode.packsInPass ? "weights packed in each pass"
                                        : "packed weights") +
         (mode.expertsInParallel ? ", a thread per expert" : ", threads in products");
}

PeerResults makePeerResults(const RowsCase& c, DType type, bool backward) {
  const int64_t rows = c.allRows(), hidden = c.hidden, inter = c.inter, experts = c.experts();
  PeerResults results;
  results.gateUp = Tensor(type, {rows, 2 * inter});
  results.act = Tensor(type, {rows, inter});
  results.y = Tensor(type, {rows, hidden});
  if (!backward) return results;
  results.actGrad = Tensor(type, {rows, inter});
  results.gateUpGrad = Tensor(type, {rows, 2 * inter});
  results.dx = Tensor(type, {rows, hidden});
  results.gateUpWeightGrad = Tensor(DType::kF32, {experts, hidden, 2 * inter});
  results.downWeightGrad = Tensor(DType::kF32, {experts, inter, hidden});
  return results;
}

Tensor widened(const Tensor& tensor) {
  Tensor wide(DType::kF32, tensor.shape());
  const auto* from = tensor.as<BFloat16>();
  auto* to = wide.as<float>();
  for (int64_t i = 0; i < tensor.elements(); ++i) to[i] = toFloat(from[i]);
  return wide;
}

double difference(DType type, const void* ours, const Tensor& theirs) {
  double apart = 0, size = 0;
  for (int64_t i = 0; i < theirs.elements(); ++i) {
    const double their = elementAt(theirs.type(), theirs.data(), i), off = elementAt(type, ours, i) - their;
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

Status PeerContest::hold(const BenchOptions& options, const RowsCase& rows, BenchLayer& layer,
                         const TensorMap& own, CaseSamples& result) {
  Expected<std::string> version = peerVersion(name_);
  if (!version) return version.error();
  version_ = std::move(*version);
  const DType type = peerKind(name_).type;
  const auto input = [&](const char* name) {
    const Tensor& tensor = own.at(name);
    if (type == DType::kBF16) return tensor.data();
    return std::as_const(widened_.emplace(name, widened(tensor)).first->second).data();
  };
  inputs_ = {&rows, input("x"), input("dy"), input("gate_up_weight"), input("down_weight"), options.threads};
  results_ = makePeerResults(rows, type, options.backward);
  if (Status done = chooseModes(options, result); !done) return done;
  return compare(layer, own, result);
}

Status PeerContest::chooseModes(const BenchOptions& options, CaseSamples& result) {
  std::array<double, 2> best{HUGE_VAL, HUGE_VAL};
  for (PassSamples& pass : result.passes) pass.peers.push_back({name_, version_, {}, {}, 0});
  for (int mode = 0; mode < (options.threads > 1 ? 4 : 2); ++mode) {
    const PeerMode words{.packed = mode % 2 == 1,
                         .packsInPass = options.weights == Weights::kOrdinary,
                         .expertsInParallel = mode >= 2};
    if (words.packed && !peerKind(name_).hasOwnLayouts) continue;
    Expected<std::unique_ptr<Peer>> made = makePeer(name_, inputs_, words, options.backward, results_);
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
      pass.peers.back().mode = peerModeName(words);
    }
  }
  return {};
}

Status PeerContest::compare(BenchLayer& layer, const TensorMap& own, CaseSamples& result) {
  for (PassSamples& pass : result.passes) {
    if (const Expected<Duration> done = layer.run(pass.pass); !done) return done.error();
    if (const Expected<Duration> done = run(pass.pass); !done) return done.error();
    const bool forward = pass.pass == Pass::kForward;
    const Expected<TensorView> rows = layer.output(forward ? "y" : "dx");
    if (!rows) return rows.error();
    double& largest = pass.peers.back().difference;
    largest = difference(rows->type, rows->data, forward ? results_.y : results_.dx);
    const auto include = [&](const char* name, const Tensor& theirs) {
      const Tensor& ours = own.at(name);
      largest = std::max(largest, difference(ours.type(), ours.data(), theirs));
    };
    if (!forward) include("gate_up_weight_grad", results_.gateUpWeightGrad);
    if (!forward) include("down_weight_grad", results_.downWeightGrad);
    if (largest > kMaxDifference)
      return Error{fmt::format("{} of case {}: {} differs from Sluice by {:.2g}, expected at most {}",
                               passName(pass.pass), result.name, version_, largest, kMaxDifference)};
  }
  return {};
}

}  // namespace sluice::tools

#include "tools/bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/overlap/overlap_report.h"

namespace sluice::tools {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

std::string sizes(const CaseSamples& c) {
  const auto [least, most] = std::minmax_element(c.rows.rows.begin(), c.rows.rows.end());
  std::string text = fmt::format("H {}, I {}, {} experts, {} rows, ", c.rows.hidden, c.rows.inter,
                                 c.rows.experts(), c.rows.allRows());
  return text + (*least == *most ? fmt::format("{} per expert", *least)
                                 : fmt::format("{} to {} per expert", *least, *most));
}

std::string peakText(const ProbeRates& all, const ProbeRates& one, int threads) {
  const auto both = [&](double ofAll, double ofOne, double unit, int digits) {
    std::string text = fmt::format("{:.{}f}", ofAll * unit, digits);
    if (threads > 1) text += fmt::format(" (one thread {:.{}f})", ofOne * unit, digits);
    return text;
  };
  return fmt::format("peak {} TFLOP/s, read {} GB/s, non-temporal write {} GB/s",
                     both(all.flops, one.flops, 1e-12, 3), both(all.read, one.read, 1e-9, 1),
                     both(all.stream, one.stream, 1e-9, 1));
}

std::string percent(double share) { return share > 0 ? fmt::format("{:.0f}%", 100 * share) : "-"; }
std::string times(double factor) { return factor > 0 ? fmt::format("{:.2f}", factor) : "-"; }

constexpr Column kColumns[] = {{"median ms", 11}, {"min", 10},      {"max", 10},
                               {"TFLOP/s", 9},    {"of peak", 8},   {"MB in+out", 11},
                               {"of read", 9},    {"bound ms", 10}, {"times", 7}};

std::vector<std::string> formatCells(const CaseSamples& c, const PassSamples& pass, ClockKind clock) {
  const PassFigures f = computeFigures(c, pass, clock);
  const auto milli = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e3); };
  return {milli(f.median),
          milli(f.least),
          milli(f.most),
          fmt::format("{:.4f}", f.flops * 1e-12),
          percent(f.shareOfPeak),
          fmt::format("{:.0f}+{:.0f}", pass.work.readBytes * 1e-6, pass.work.writtenBytes * 1e-6),
          percent(f.shareOfRead),
          milli(f.bound),
          times(f.overBound)};
}

}  // namespace

PassFigures computeFigures(const CaseSamples& samples, const PassSamples& pass, ClockKind clock) {
  PassFigures f;
  f.median = pass.sluice.median(clock);
  f.least = pass.sluice.least(clock);
  f.most = pass.sluice.most(clock);
  f.flops = ratio(pass.work.flops, f.median);
  const ProbeRates all = medianRates(samples.probesOfAll), one = medianRates(samples.probesOfOne);
  f.shareOfPeak = ratio(f.flops, all.flops);
  f.readRate = ratio(pass.work.readBytes, f.median);
  f.shareOfRead = ratio(f.readRate, all.read);
  f.bound = std::max(ratio(pass.work.flops, all.flops),
                     ratio(pass.work.readBytes, all.read) + ratio(pass.work.writtenBytes, all.stream));
  f.overBound = ratio(f.median, f.bound);
  for (const PeerSamples& peer : pass.peers) {
    const double median = peer.samples.median(clock);
    f.peers.push_back({median, ratio(median, f.median)});
  }
  if (pass.single) {
    f.gain = ratio(pass.single->median(clock), f.median);
    f.gainOfProbe = ratio(all.flops, one.flops);
  }
  if (pass.bare) f.overBare = ratio(f.median, pass.bare->median(clock));
  return f;
}

std::string formatText(const CaseSamples& c, const BenchOptions& options, const Machine& machine) {
  const int threads = c.passes.empty() ? options.threads : c.passes.front().sluice.threads;
  std::string text = fmt::format("{}: {}\n", c.name, sizes(c));
  text += fmt::format("  {} {}, {} kernels, {} weights, {} repetitions in turn, {}\n", threads,
                      threads == 1 ? "thread" : "threads", machine.isa, weightsName(options.weights),
                      options.repeat,
                      options.clock == ClockKind::kWall ? "wall time" : "processor time / threads");
  text += fmt::format("  {}\n", peakText(medianRates(c.probesOfAll), medianRates(c.probesOfOne), threads));
  text += fmt::format("  {:<9}{}\n", "pass", textLine(kColumns, listHeads(kColumns)));
  for (const PassSamples& pass : c.passes)
    text += fmt::format("  {:<9}{}\n", passName(pass.pass),
                        textLine(kColumns, formatCells(c, pass, options.clock)));
  for (const PassSamples& pass : c.passes) {
    const PassFigures f = computeFigures(c, pass, options.clock);
    for (size_t p = 0; p < pass.peers.size(); ++p) {
      const PeerSamples& peer = pass.peers[p];
      text += fmt::format("  {:<9}{} takes {:.3f} ms ({}), {:.2f} times as long; results differ by {:.1e}\n",
                          passName(pass.pass), peer.version, f.peers[p].median * 1e3, peer.mode,
                          f.peers[p].overSluice, peer.difference);
    }
    if (pass.single)
      text += fmt::format(
          "  {:<9}one thread takes {:.3f} ms: {} threads gain {:.2f}, {} of what the peak gains\n",
          passName(pass.pass), pass.single->median(options.clock) * 1e3, threads, f.gain,
          times(ratio(f.gain, f.gainOfProbe)));
    if (pass.bare)
      text +=
          fmt::format("  {:<9}its products alone take {:.3f} ms: the whole layer takes {:.2f} times that\n",
                      passName(pass.pass), pass.bare->median(options.clock) * 1e3, f.overBare);
  }
  return text;
}

std::string markdownHeader(const BenchOptions& options) {
  std::vector<std::string> heads = listHeads(kColumns);
  heads.insert(heads.begin(), {"case", "pass"});
  for (const std::string& peer : options.peers) heads.insert(heads.end(), {peer + " ms", peer + " / Sluice"});
  heads.insert(heads.end(), {"gain of threads", "of the peak's"});
  return markdownHeads(heads);
}

std::string formatMarkdown(const CaseSamples& c, const BenchOptions& options) {
  std::string text;
  for (const PassSamples& pass : c.passes) {
    const PassFigures f = computeFigures(c, pass, options.clock);
    std::vector<std::string> cells = formatCells(c, pass, options.clock);
    cells.insert(cells.begin(), {c.name, std::string(passName(pass.pass))});
    for (const PeerFigures& peer : f.peers)
      cells.insert(cells.end(), {times(peer.median * 1e3), times(peer.overSluice)});
    cells.insert(cells.end(), {times(f.gain), times(ratio(f.gain, f.gainOfProbe))});
    text += markdownLine(cells);
  }
  return text;
}

std::string skewText(const std::vector<CaseSamples>& all, ClockKind clock) {
  const auto find = [&](std::string_view name) {
    return std::find_if(all.begin(), all.end(), [&](const CaseSamples& c) { return c.name == name; });
  };
  const auto even = find("a"), skewed = find("d");
  if (even == all.end() || skewed == all.end()) return {};
  std::string text;
  for (size_t p = 0; p < even->passes.size(); ++p)
    text += fmt::format("d takes {:.2f} times as long as a, {}\n",
                        ratio(skewed->passes[p].sluice.median(clock), even->passes[p].sluice.median(clock)),
                        passName(even->passes[p].pass));
  return text;
}

}  // namespace sluice::tools

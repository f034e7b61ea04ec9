#include "tools/bench/report.h"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace

PassFigures figuresOf(const CaseSamples& samples, const PassSamples& pass, ClockKind clock) {
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
  if (pass.peer) {
    f.peerMedian = pass.peer->samples.median(clock);
    f.peerOverSluice = ratio(f.peerMedian, f.median);
  }
  if (pass.single) {
    f.gain = ratio(pass.single->median(clock), f.median);
    f.gainOfProbe = ratio(all.flops, one.flops);
  }
  if (pass.bare) f.overBare = ratio(f.median, pass.bare->median(clock));
  return f;
}

std::string textOf(const CaseSamples& c, const BenchOptions& options, const Machine& machine) {
  const int threads = c.passes.empty() ? options.threads : c.passes.front().sluice.threads;
  std::string text = fmt::format("{}: {}\n", c.name, sizes(c));
  text += fmt::format("  {} {}, {} kernels, {} weights, {} repetitions in turn, {}\n", threads,
                      threads == 1 ? "thread" : "threads", machine.isa, weightsName(options.weights),
                      options.repeat,
                      options.clock == ClockKind::kWall ? "wall time" : "processor time / threads");
  text += fmt::format("  {}\n", peakText(medianRates(c.probesOfAll), medianRates(c.probesOfOne), threads));
  text += fmt::format("  {:<9}{:>11}{:>10}{:>10}{:>9}{:>8}{:>11}{:>9}{:>10}{:>7}\n", "pass", "median ms",
                      "min", "max", "TFLOP/s", "of peak", "MB in+out", "of read", "bound ms", "times");
  for (const PassSamples& pass : c.passes) {
    const PassFigures f = figuresOf(c, pass, options.clock);
    text += fmt::format(
        "  {:<9}{:>11.3f}{:>10.3f}{:>10.3f}{:>9.4f}{:>8}{:>11}{:>9}{:>10.3f}{:>7}\n", passName(pass.pass),
        f.median * 1e3, f.least * 1e3, f.most * 1e3, f.flops * 1e-12, percent(f.shareOfPeak),
        fmt::format("{:.0f}+{:.0f}", pass.work.readBytes * 1e-6, pass.work.writtenBytes * 1e-6),
        percent(f.shareOfRead), f.bound * 1e3, times(f.overBound));
  }
  for (const PassSamples& pass : c.passes) {
    const PassFigures f = figuresOf(c, pass, options.clock);
    if (pass.peer)
      text += fmt::format("  {:<9}{} takes {:.3f} ms ({}), {:.2f} times as long; results differ by {:.1e}\n",
                          passName(pass.pass), machine.peer, f.peerMedian * 1e3, pass.peer->mode,
                          f.peerOverSluice, pass.peer->difference);
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

std::string markdownHeader() {
  return "| case | pass | median ms | min | max | TFLOP/s | of peak | of read | bound ms | times bound | "
         "peer ms "
         "| peer / Sluice | gain of threads | of the peak's |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
}

std::string markdownOf(const CaseSamples& c, const BenchOptions& options) {
  std::string text;
  for (const PassSamples& pass : c.passes) {
    const PassFigures f = figuresOf(c, pass, options.clock);
    text += fmt::format(
        "| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.3f} | {} | {} | {:.2f} | {} | {} | {} | {} | {} |\n",
        c.name, passName(pass.pass), f.median * 1e3, f.least * 1e3, f.most * 1e3, f.flops * 1e-12,
        percent(f.shareOfPeak), percent(f.shareOfRead), f.bound * 1e3, times(f.overBound),
        pass.peer ? fmt::format("{:.2f}", f.peerMedian * 1e3) : "-", times(f.peerOverSluice), times(f.gain),
        times(ratio(f.gain, f.gainOfProbe)));
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

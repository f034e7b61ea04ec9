#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tools/bench/report.h"
#include "tools/command_line.h"

namespace sluice::tools {
namespace {

// In pixels.
constexpr int kWidth = 760, kMargin = 24;
constexpr int kBarsLeft = 110, kBarsWidth = 560;
constexpr int kHead = 96, kCaseHead = 26, kBar = 16, kBarStep = 21, kBetweenCases = 12, kFoot = 36;

constexpr std::string_view kSluiceColor = "#1f6fb2", kPeerColor = "#c9a26b";

// Text between tags. A file that is shown must not contain control characters either.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char each : printable(text)) {
    switch (each) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += each;
    }
  }
  return result;
}

std::string textAt(int x, int y, std::string_view attributes, std::string_view text) {
  return fmt::format("  <text x=\"{}\" y=\"{}\"{}{}>{}</text>\n", x, y, attributes.empty() ? "" : " ",
                     attributes, escaped(text));
}

struct Bar {
  std::string label;
  double share = 0;
  bool isPeer = false;
};

std::vector<Bar> makeBars(const CaseSamples& samples, ClockKind clock) {
  std::vector<Bar> bars;
  for (const PassSamples& pass : samples.passes) {
    const PassFigures figures = computeFigures(samples, pass, clock);
    bars.push_back({std::string(passName(pass.pass)), figures.shareOfPeak, false});
    for (size_t p = 0; p < pass.peers.size(); ++p)
      if (const double over = figures.peers[p].overSluice; over > 0)
        bars.push_back({pass.peers[p].name, figures.shareOfPeak / over, true});
  }
  return bars;
}

// The end of the scale in percent, a multiple of 20.
int scaleEnd(const std::vector<std::vector<Bar>>& cases) {
  double most = 1;
  for (const std::vector<Bar>& bars : cases)
    for (const Bar& bar : bars) most = std::max(most, bar.share);
  return 20 * static_cast<int>(std::ceil(5 * std::min(most, 100.0) - 1e-9));
}

int barWidth(double percent, int end) {
  const double part = std::clamp(percent / end, 0.0, 1.0);
  return static_cast<int>(std::lround(part * kBarsWidth));
}

std::string drawBar(const Bar& bar, int y, int end) {
  const int width = barWidth(100 * bar.share, end);
  return textAt(kBarsLeft - 8, y + kBar - 4, "text-anchor=\"end\"", bar.label) +
         fmt::format("  <rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                     bar.isPeer ? "peer" : "sluice", kBarsLeft, y, width, kBar,
                     bar.isPeer ? kPeerColor : kSluiceColor) +
         textAt(kBarsLeft + width + 6, y + kBar - 4, "", fmt::format("{:.0f}%", 100 * bar.share));
}

std::string drawScale(int end, int bottom) {
  const int step = 20 * std::max(1, end / 200);
  std::string text;
  for (int percent = 0; percent <= end; percent += step) {
    const int x = kBarsLeft + barWidth(percent, end);
    text += fmt::format("  <line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#d8d8d8\"/>\n", x,
                        kHead - 4, x, bottom);
    text += textAt(x, bottom + 16, "text-anchor=\"middle\" fill=\"#666666\"", fmt::format("{}%", percent));
  }
  return text;
}

std::string drawHead(const std::vector<CaseSamples>& all, const BenchOptions& options,
                     const Machine& machine) {
  const int threads =
      all.empty() || all[0].passes.empty() ? options.threads : all[0].passes[0].sluice.threads;
  std::string text = textAt(kMargin, 32, "font-size=\"16\" font-weight=\"bold\"",
                            fmt::format("Share of the register peak: {}", machine.cpu));
  text += textAt(
      kMargin, 54, "fill=\"#444444\"",
      fmt::format("{} {}, {} kernels, {} weights, median of {}", threads, threads == 1 ? "thread" : "threads",
                  machine.isa, weightsName(options.weights), options.repeat));
  const auto legend = [&](int x, std::string_view color, const std::string& name) {
    text += fmt::format("  <rect x=\"{}\" y=\"66\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, color);
    text += textAt(x + 18, 76, "", name);
  };
  legend(kMargin, kSluiceColor, "Sluice");
  if (!machine.peers.empty()) legend(kMargin + 90, kPeerColor, machine.peers);
  return text;
}

}  // namespace

std::string drawPlot(const std::vector<CaseSamples>& all, const BenchOptions& options,
                     const Machine& machine) {
  std::vector<std::vector<Bar>> cases;
  for (const CaseSamples& samples : all) cases.push_back(makeBars(samples, options.clock));
  const int end = scaleEnd(cases);
  std::string bars;
  int y = kHead;
  for (size_t i = 0; i < all.size(); ++i) {
    bars += textAt(kMargin, y + 16, "font-weight=\"bold\"", all[i].name);
    y += kCaseHead;
    for (const Bar& bar : cases[i]) {
      bars += drawBar(bar, y, end);
      y += kBarStep;
    }
    y += kBetweenCases;
  }
  const int height = y + kFoot;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
             "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222222\">\n"
             "  <title>{2}</title>\n"
             "  <rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
             kWidth, height, escaped(fmt::format("Share of the register peak: {}", machine.cpu))) +
         drawHead(all, options, machine) + drawScale(end, y) + bars + "</svg>\n";
}

}  // namespace sluice::tools

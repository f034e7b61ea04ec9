#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "runtime/program/text_names.h"
#include "runtime/trace/chrome_trace.h"
#include "tools/report/report.h"
#include "tools/report/run.h"
#include "tools/report/sections.h"

namespace sluice::tools {
namespace {

constexpr size_t kMaxRanks = 8;
constexpr double kWidth = 1000, kLeft = 118, kRow = 22, kGap = 4;
constexpr const char *kWaitForRows = "#e4b7b7", *kWait = "#e6e6e6", *kRows = "#fbdcb4", *kResults = "#cfe6c8";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text)
    result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

class Picture {
 public:
  Picture(const ReportSource& source, const Run& run)
      : source_(source), program_(source.program.tables()), run_(run), colours_(familyColours(program_)) {}

  Expected<std::string> draw() {
    for (const RunSpan& each : run_.spans) {
      if (each.span->kind != SpanKind::kRun) continue;
      begin_ = std::min(begin_.value_or(each.span->begin), each.span->begin);
      end_ = std::max(end_, each.span->end);
      entries_.insert(each.span->entry.value);
    }
    if (!begin_) return Error{fmt::format("{}: found no step to draw", source_.file)};
    const size_t ranks = std::min(source_.ranks.size(), kMaxRanks);
    for (size_t rank = 0; rank < ranks; ++rank) drawRank(rank);
    if (ranks < source_.ranks.size())
      text(kLeft, y_ + 12, fmt::format("and {} more ranks", source_.ranks.size() - ranks)), y_ += kRow;
    axis();
    legend();
    return finish();
  }

 private:
  double x(int64_t time) const {
    return kLeft + static_cast<double>(time - *begin_) /
                       static_cast<double>(std::max<int64_t>(1, end_ - *begin_)) * (kWidth - kLeft - 8);
  }

  // Bars of one colour that begin and end in the same tenth of a pixel are one.
  void bar(int64_t begin, int64_t end, const std::string& colour, const std::string& hint, double top = 0,
           double height = kRow) {
    const double left = x(begin), width = std::max(x(end) - left, 0.3);
    const std::string place =
        fmt::format("x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"{}\"", left,
                    y_ + top, width, height, colour);
    if (!drawn_.insert(place).second) return;
    body_ += fmt::format("<rect {}><title>{}</title></rect>\n", place, escaped(hint));
  }

  void text(double left, double top, const std::string& words, const char* more = "") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", left, top, more, escaped(words));
  }

  void label(const std::string& words, bool isBold = false) {
    text(kLeft - 8, y_ + kRow - 7, words,
         isBold ? " text-anchor=\"end\" font-weight=\"bold\"" : " text-anchor=\"end\"");
  }

  void drawRank(size_t rank) {
    drawn_.clear();
    label(source_.rankName(rank), true);
    arriving(rank);
    y_ += kRow + kGap;
    std::optional<size_t> track;
    for (const RunSpan& each : run_.spans) {
      const RunTrack& of = run_.tracks[each.track];
      if (of.rank != rank || of.worker < 0) continue;
      if (track != each.track) {
        if (track) y_ += kRow + kGap;
        track = each.track;
        drawn_.clear();
        label(fmt::format("worker {}", of.worker));
      }
      span(each);
    }
    y_ += kRow + 2 * kGap;
  }

  void span(const RunSpan& each) {
    const TraceSpan& span = *each.span;
    const std::string time = fmt::format("{:.3f} ms", milli(span.end - span.begin));
    if (isWait(span.kind)) {
      const std::string event = span.event ? program_.at(span.event).name : "?";
      bar(span.begin, span.end, isArrival(program_, span.event) ? kWaitForRows : kWait,
          fmt::format("wait for {}[{}]: {}", event, span.index, time));
    } else if (span.kind == SpanKind::kTask) {
      used_.insert(span.family.value);
      bar(span.begin, span.end, colours_[span.family.value],
          fmt::format("{}[{},{}], {} rows: {}", program_.at(span.family).name, span.slot, span.tile,
                      span.rows, time));
    }
    if (each.isCritical)
      body_ += fmt::format("<path d=\"M{:.1f} {:.0f}h{:.1f}\" stroke=\"#c00\" stroke-width=\"2\"/>\n",
                           x(span.begin), y_ + kRow + 1, std::max(0.3, x(span.end) - x(span.begin)));
  }

  // What other ranks send to this one, in each step: rows in the upper half, results in the lower one. A bar
  // begins with the first task that sends, and ends when the last of them has ended or a worker has stopped
  // waiting for what it sent. Marks are such ends: nothing else shows when something is there.
  void arriving(size_t rank) {
    for (const RunSpan& step : run_.spans) {
      if (step.span->kind != SpanKind::kRun || run_.tracks[step.track].rank != rank) continue;
      for (const SpaceKind kind : {SpaceKind::kSends, SpaceKind::kReturns})
        drawArrivals(rank, *step.span, kind);
    }
  }

  void drawArrivals(size_t rank, const TraceSpan& step, SpaceKind kind) {
    const bool isResult = kind == SpaceKind::kReturns;
    const double top = isResult ? kRow / 2 + 1 : 1, height = kRow / 2 - 2;
    std::optional<int64_t> first;
    int64_t last = 0;
    std::string marks;
    for (const RunSpan& each : run_.spans) {
      const TraceSpan& span = *each.span;
      if (span.entry != step.entry || span.begin < step.begin || span.begin >= step.end) continue;
      const bool isHere = run_.tracks[each.track].rank == rank;
      if (!isHere && isSent(each, rank, kind)) {
        first = std::min(first.value_or(span.begin), span.begin);
        last = std::max(last, span.end);
      } else if (isHere && each.cause != kNoCause &&
                 isSent(run_.spans[static_cast<size_t>(each.cause)], rank, kind)) {
        last = std::max(last, span.end);
        marks += fmt::format("<path d=\"M{:.1f} {:.0f}v{:.0f}\" stroke=\"{}\"/>\n", x(span.end), y_ + top,
                             height, isResult ? "#5a9e4b" : "#e8871e");
      }
    }
    if (first)
      bar(*first, std::min(last, step.end), isResult ? kResults : kRows, isResult ? "results" : "rows", top,
          height);
    body_ += marks;
  }

  // Whether a task of another rank sends to this one, in that direction.
  bool isSent(const RunSpan& each, size_t rank, SpaceKind kind) const {
    return each.span->kind == SpanKind::kTask && each.peer == static_cast<int32_t>(rank) &&
           run_.tracks[each.track].rank != rank &&
           program_.at(program_.at(each.span->family).space).kind == kind;
  }

  void axis() {
    const double length = milli(end_ - *begin_);
    double step = 1e-6;
    for (int i = 0; length / step > 10; ++i) step *= i % 3 == 1 ? 2.5 : 2;  // 1, 2, 5, 10
    for (int i = 0; i * step <= length; ++i) {
      const double at = kLeft + i * step / length * (kWidth - kLeft - 8);
      if (at > kWidth - 25) break;  // its label would be cut off
      body_ += fmt::format("<path d=\"M{:.1f} {:.0f}v5\" stroke=\"#888\"/>\n", at, y_);
      text(at, y_ + 18, fmt::format("{:.6g} ms", i * step), " text-anchor=\"middle\"");
    }
    y_ += 30;
  }

  void legend() {
    std::vector<std::pair<std::string, std::string>> parts;
    for (const uint32_t family : used_) {
      const Family& of = program_.families[family];
      parts.emplace_back(entries_.size() > 1 ? text::nameInEntry(program_, of) : of.name, colours_[family]);
    }
    parts.insert(parts.end(), {{"wait for rows", kWaitForRows},
                               {"wait for a task", kWait},
                               {"rows on their way", kRows},
                               {"results on their way back", kResults}});
    if (run_.gaps.empty()) parts.emplace_back("below: critical path", "#c00");
    double left = kLeft;
    for (const auto& [words, colour] : parts) {
      const double width = 28 + 6.6 * static_cast<double>(words.size());
      if (left + width > kWidth) left = kLeft, y_ += 20;
      body_ += fmt::format("<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", left,
                           y_, colour);
      text(left + 16, y_ + 10.5, words);
      left += width;
    }
    y_ += 22;
    if (run_.gaps.empty()) return;
    text(kLeft, y_ + 10, "not shown: what is being sent, and the critical path: " + run_.gaps);
    y_ += 22;
  }

  std::string finish() const {
    std::string entries;
    for (const uint32_t entry : entries_)
      entries += (entries.empty() ? "" : ", then ") + program_.entries[entry].name;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "font-family=\"sans-serif\" "
        "font-size=\"11.5\" fill=\"#222\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n"
        "<text x=\"{2:.0f}\" y=\"18\" font-size=\"13\" font-weight=\"bold\">{3}</text>\n{4}</svg>\n",
        kWidth, y_, kLeft, escaped(program_.name + ": " + entries), body_);
  }

  const ReportSource& source_;
  const TaskProgram& program_;
  const Run& run_;
  const std::vector<std::string> colours_;
  std::optional<int64_t> begin_;
  int64_t end_ = 0;
  std::set<uint32_t> entries_, used_;
  std::set<std::string> drawn_;  // of the row
  std::string body_;
  double y_ = 30;
};

}  // namespace

Expected<std::string> reportSvg(const ReportSource& source) {
  if (!source.hasRun())
    return Error{fmt::format("{}: found a program, expected a trace for --format svg", source.file)};
  return Picture(source, analyseRun(source)).draw();
}

}  // namespace sluice::tools

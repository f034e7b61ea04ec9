// The parts of a report that a run has.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "compiler/target/target.h"
#include "runtime/base/base64.h"
#include "runtime/program/text_names.h"
#include "runtime/program/words.h"
#include "runtime/trace/chrome_trace.h"
#include "tools/report/sections.h"

namespace sluice::tools {
namespace {

constexpr uint16_t kNone16 = 65535;

// As page/data.js numbers them.
enum class PageKind : uint8_t { kTask, kArrival, kProducer, kStart, kEnd, kStep, kBind, kExchange, kStuck };

PageKind pageKind(const TaskProgram& program, const TraceSpan& span) {
  switch (span.kind) {
    case SpanKind::kTask:
      return PageKind::kTask;
    case SpanKind::kWait:
      return isArrival(program, span.event) ? PageKind::kArrival : PageKind::kProducer;
    case SpanKind::kStart:
      return PageKind::kStart;
    case SpanKind::kEnd:
      return PageKind::kEnd;
    case SpanKind::kRun:
      return PageKind::kStep;
    case SpanKind::kBind:
      return PageKind::kBind;
    case SpanKind::kExchange:
      return PageKind::kExchange;
    case SpanKind::kStuck:
      break;
  }
  return PageKind::kStuck;
}

// A column of all spans, little-endian as the machines are that Sluice runs on.
template <class T, class Value>
std::string column(const Run& run, const Value& value) {
  std::vector<T> values;
  values.reserve(run.spans.size());
  for (const RunSpan& span : run.spans) values.push_back(static_cast<T>(value(span)));
  return toBase64(std::as_bytes(std::span(values)));
}

template <class Id>
uint16_t narrow(Id id) {
  return id && id.value < kNone16 ? static_cast<uint16_t>(id.value) : kNone16;
}

Json spansJson(const TaskProgram& program, const Run& run) {
  const auto workOfSpan = [&](const RunSpan& each) {
    const TraceSpan& span = *each.span;
    return span.kind == SpanKind::kTask ? countWork(program, span.family, span.tile, span.rows) : TaskWork{};
  };
  Json spans;
  spans["count"] = run.spans.size();
  spans["begin"] = column<double>(run, [](const RunSpan& each) { return each.span->begin; });
  spans["length"] =
      column<double>(run, [](const RunSpan& each) { return each.span->end - each.span->begin; });
  spans["track"] = column<uint16_t>(run, [](const RunSpan& each) { return each.track; });
  spans["lane"] =
      column<uint16_t>(run, [](const RunSpan& each) { return std::min<size_t>(each.lane, kNone16); });
  spans["kind"] = column<uint8_t>(run, [&](const RunSpan& each) { return pageKind(program, *each.span); });
  spans["family"] = column<uint16_t>(run, [](const RunSpan& each) { return narrow(each.span->family); });
  spans["entry"] = column<uint16_t>(run, [](const RunSpan& each) { return narrow(each.span->entry); });
  spans["slot"] = column<uint32_t>(run, [](const RunSpan& each) { return each.span->slot; });
  spans["tile"] = column<uint32_t>(run, [](const RunSpan& each) { return each.span->tile; });
  spans["rows"] = column<uint32_t>(run, [](const RunSpan& each) { return each.span->rows; });
  spans["expert"] = column<uint16_t>(run, [](const RunSpan& each) {
    return each.expert < 0 || each.expert >= kNone16 ? kNone16 : each.expert;
  });
  spans["event"] = column<uint16_t>(run, [](const RunSpan& each) { return narrow(each.span->event); });
  spans["index"] =
      column<uint32_t>(run, [](const RunSpan& each) { return std::max<int64_t>(0, each.span->index); });
  spans["cause"] = column<int32_t>(run, [](const RunSpan& each) { return each.cause; });
  spans["critical"] = column<uint8_t>(run, [](const RunSpan& each) { return each.isCritical; });
  spans["flops"] = column<float>(run, [&](const RunSpan& each) { return workOfSpan(each).flops; });
  spans["bytes"] = column<float>(run, [&](const RunSpan& each) { return workOfSpan(each).bytes; });
  return spans;
}

Json useJson(const ReportSource& source, const Run& run) {
  Json use = Json::array();
  for (const RunTrack& track : run.tracks) {
    if (track.worker < 0) continue;
    use.push_back({{"name", fmt::format("{}, worker {}", source.rankName(track.rank), track.worker)},
                   {"busy", track.time.busy},
                   {"overhead", track.time.overhead},
                   {"arrival", track.time.arrival},
                   {"producer", track.time.producer},
                   {"start", track.time.start},
                   {"end", track.time.end}});
  }
  return use;
}

// The roofs are the rates of the target for which the program was compiled, if it is here and has rates.
Json rooflineJson(const TaskProgram& program, const Run& run) {
  Json points = Json::array(), roofs = Json::array();
  for (size_t f = 0; f < run.families.size(); ++f)
    if (const auto& [tasks, time, longest, work] = run.families[f];
        work.flops > 0 && work.bytes > 0 && time > 0)
      points.push_back({{"family", f},
                        {"intensity", work.flops / work.bytes},
                        {"gflops", work.flops / static_cast<double>(time)},
                        {"ms", milli(time)}});
  const Expected<Target> target = loadTarget(program.target, targetFolders(""));
  if (target && target->rates) {
    roofs.push_back(
        {{"name", "products of target " + target->name}, {"gflops", target->rates->matrix.gmm.flops * 1e-9}});
    roofs.push_back({{"name", "memory, one core"}, {"gbytes", target->rates->memory.coreRead * 1e-9}});
  }
  return {{"roofs", roofs}, {"points", points}};
}

Json routingJson(const TaskProgram& program, const Run& run) {
  Json routing = Json::array();
  for (const RoutedRows& rows : run.routed) {
    std::vector<int32_t> owner(static_cast<size_t>(program.experts));
    for (int32_t rank = 0; rank < program.mesh.peers(); ++rank)
      for (int32_t expert = 0; expert < program.countExperts(rank); ++expert)
        if (int32_t& of = owner[static_cast<size_t>(program.findFirstExpert(rank) + expert)]; of == 0)
          of = rank;
    routing.push_back({{"entry", program.at(rows.entry).name}, {"counts", rows.counts}, {"owner", owner}});
  }
  return routing;
}

}  // namespace

Json hangJson(const ReportSource& source) {
  const std::optional<Hang> hang = findHang(source);
  if (!hang) return nullptr;
  Json edges = Json::array();
  for (const HangEdge& edge : hang->edges)
    edges.push_back({{"from", edge.from}, {"to", edge.to}, {"label", edge.label}, {"missing", edge.missing}});
  std::string text = fmt::format("{}", fmt::join(hang->messages, "\n"));
  if (hang->leftOut > 0) text += fmt::format("\n{} more waits are not drawn", hang->leftOut);
  return {{"text", std::move(text)}, {"edges", std::move(edges)}};
}

void addRunJson(const ReportSource& source, const Run& run, Json& report) {
  const TaskProgram& program = source.program.tables();
  Json processes = Json::array(), tracks = Json::array(), lanes = Json::array();
  for (size_t rank = 0; rank < source.ranks.size(); ++rank)
    processes.push_back({{"name", source.rankName(rank)}});
  for (const RunTrack& track : run.tracks)
    tracks.push_back({{"process", track.rank},
                      {"name", track.worker < 0 ? "steps" : fmt::format("worker {}", track.worker)}});
  for (const RunLane& each : run.lanes) {
    const Lane& lane = program.at(each.lane);
    lanes.push_back({{"process", each.rank},
                     {"name", fmt::format("{} {}", text::coreName(lane.core, each.core),
                                          text::nameInEntry(program, lane))}});
  }
  report["processes"] = std::move(processes);
  report["tracks"] = std::move(tracks);
  report["lanes"] = std::move(lanes);
  report["spans"] = spansJson(program, run);
  report["use"] = useJson(source, run);
  report["roofline"] = rooflineJson(program, run);
  report["routing"] = routingJson(program, run);
}

}  // namespace sluice::tools

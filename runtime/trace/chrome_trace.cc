#include "runtime/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>

#include "runtime/base/utf8.h"
#include "runtime/program/words.h"
#include "runtime/trace/task_work.h"

namespace sluice {
namespace {

// A JSON string from any bytes: those that are not UTF-8 become U+FFFD.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const size_t length = utf8Length(text);
    const unsigned char first = static_cast<unsigned char>(text[0]);
    if (length == 0)
      result += "\xef\xbf\xbd";
    else if (first == '"' || first == '\\')
      result.append({'\\', text[0]});
    else if (first < 0x20 || first == 0x7f)
      result += fmt::format("\\u{:04x}", first);
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return result + '"';
}

// Orders the tracks of a rank: the rank's own first, then each worker with its cores and their lanes.
using TrackKey =
    std::tuple<int32_t, int32_t, uint32_t, int32_t, uint32_t>;  // worker, core, entry, priority, lane
constexpr int32_t kNoCore = -1;

TrackKey trackOf(const TaskProgram& program, const TraceSpan& span) {
  if (span.lane.none()) return {span.worker, kNoCore, 0, 0, 0};
  return {span.worker, span.core, span.entry.value, program.at(span.lane).priority, span.lane.value};
}

std::string trackName(const TaskProgram& program, const TraceSpan& span) {
  if (span.worker < 0) return "steps";
  if (span.lane.none()) return fmt::format("worker {}: nothing to do", span.worker);
  const Lane& lane = program.at(span.lane);
  return fmt::format("{} {}/{}", text::coreName(lane.core, span.core), program.at(span.entry).name,
                     lane.name);
}

class Writer {
 public:
  Writer(const TaskProgram& program, const std::vector<Trace>& ranks) : program_(program) {
    bool any = false;
    for (const Trace& trace : ranks)
      for (const TraceSpan& span : trace.spans) {
        origin_ = any ? std::min(origin_, span.begin) : span.begin;
        any = true;
      }
  }

  void rank(size_t rank, const Trace& trace) {
    meta(rank, 0, "process_name", fmt::format("\"name\":\"rank {}\"", rank));
    meta(rank, 0, "process_sort_index", fmt::format("\"sort_index\":{}", rank));
    std::map<TrackKey, std::pair<size_t, const TraceSpan*>> tracks;
    for (const TraceSpan& span : trace.spans) tracks.try_emplace(trackOf(program_, span), 0, &span);
    size_t next = 0;
    for (auto& [key, track] : tracks) {
      track.first = next++;
      meta(rank, track.first, "thread_name",
           fmt::format("\"name\":{}", quoted(trackName(program_, *track.second))));
      meta(rank, track.first, "thread_sort_index", fmt::format("\"sort_index\":{}", track.first));
    }
    for (const TraceSpan& span : trace.spans) event(rank, tracks[trackOf(program_, span)].first, span);
  }

  std::string finish(int64_t dropped) {
    return fmt::format(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"program\":{},\"target\":{},\"dropped_spans\":{}}},\n"
        "\"traceEvents\":[\n{}\n]}}\n",
        quoted(program_.name), quoted(program_.target), dropped, fmt::to_string(events_));
  }

 private:
  void separate() {
    if (events_.size() > 0) fmt::format_to(std::back_inserter(events_), ",\n");
  }

  void meta(size_t rank, size_t track, const char* name, const std::string& args) {
    separate();
    fmt::format_to(std::back_inserter(events_),
                   "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{{}}}}}", rank, track,
                   name, args);
  }

  void event(size_t rank, size_t track, const TraceSpan& span) {
    separate();
    const int64_t begin = span.begin - origin_, length = std::max<int64_t>(0, span.end - span.begin);
    const auto [name, category, args] = describe(span);
    fmt::format_to(std::back_inserter(events_),
                   "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},\"name\":{},"
                   "\"cat\":\"{}\",\"args\":{{{}}}}}",
                   rank, track, begin / 1000, begin % 1000, length / 1000, length % 1000, quoted(name),
                   category, args);
  }

  struct Description {
    std::string name;
    const char* category;
    std::string args;
  };

  Description describe(const TraceSpan& span) const {
    const std::string& entry = program_.at(span.entry).name;
    switch (span.kind) {
      case SpanKind::kTask:
        return describeTask(span);
      case SpanKind::kWait:
        return describeWait(span);
      case SpanKind::kStart:
        return {"start", "idle", fmt::format("\"entry\":{}", quoted(entry))};
      case SpanKind::kEnd:
        return {"end", "idle", fmt::format("\"entry\":{}", quoted(entry))};
      case SpanKind::kRun:
        return {entry, "step", ""};
      case SpanKind::kBind:
        return {"bind", "step", ""};
      case SpanKind::kExchange:
        return {"exchange", "step", ""};
    }
    return {"?", "?", ""};
  }

  Description describeTask(const TraceSpan& span) const {
    const TaskWork work = workOf(program_, span.family, span.tile, span.rows);
    return {program_.at(span.family).name, "task",
            fmt::format("\"slot\":{},\"tile\":{},\"rows\":{},\"bytes\":{:.0f},\"flops\":{:.0f},\"worker\":{}",
                        span.slot, span.tile, span.rows, work.bytes, work.flops, span.worker)};
  }

  Description describeWait(const TraceSpan& span) const {
    const std::string& family = program_.at(span.family).name;
    const std::string event = span.event ? program_.at(span.event).name : "";
    return {"wait " + event, "wait",
            fmt::format("\"cause\":\"{}\",\"event\":{},\"index\":{},\"family\":{},\"slot\":{},\"tile\":{},"
                        "\"worker\":{}",
                        causeOfWait(program_, span.event), quoted(event), span.index, quoted(family),
                        span.slot, span.tile, span.worker)};
  }

  const TaskProgram& program_;
  int64_t origin_ = 0;
  fmt::memory_buffer events_;
};

}  // namespace

const char* causeOfWait(const TaskProgram& program, EventId event) {
  return event && program.at(event).remote ? "arrival" : "producer";
}

std::string chromeTrace(const TaskProgram& program, const std::vector<Trace>& ranks) {
  Writer writer(program, ranks);
  int64_t dropped = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    writer.rank(rank, ranks[rank]);
    dropped += ranks[rank].dropped;
  }
  return writer.finish(dropped);
}

}  // namespace sluice

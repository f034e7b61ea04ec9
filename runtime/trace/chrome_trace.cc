#include "runtime/trace/chrome_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "runtime/base/base64.h"
#include "runtime/base/utf8.h"
#include "runtime/program/codec.h"
#include "runtime/program/space_table.h"
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

TrackKey findTrack(const TaskProgram& program, const TraceSpan& span) {
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

using Tracks = std::map<TrackKey, std::pair<size_t, const TraceSpan*>>;  // number, any of its spans

int64_t numberOf(EventId event) { return event ? int64_t{event.value} : -1; }

// A run that failed, with its next tasks; names of the program by their numbers.
std::string describeFailure(const FailedRun& failed) {
  std::string text = fmt::format("{{\"entry\":{},\"step\":{},\"message\":{},\"next\":[", failed.entry.value,
                                 failed.step, quoted(failed.message));
  for (const NextTask& next : failed.next) {
    std::vector<std::string> cores;
    for (const CoreOfLane& at : next.cores) cores.push_back(fmt::format("[{},{}]", at.lane.value, at.core));
    text += fmt::format(
        "{}{{\"lane\":{},\"core\":{},\"family\":{},\"slot\":{},\"tile\":{},\"event\":{},\"index\":{},"
        "\"have\":{},\"need\":{},\"ranks\":[{}],\"cores\":[{}]}}",
        &next == &failed.next[0] ? "" : ",\n", next.at.lane.value, next.at.core, next.family.value, next.slot,
        next.tile, numberOf(next.event), next.index, next.have, next.need, fmt::join(next.ranks, ","),
        fmt::join(cores, ","));
  }
  return text + "]}";
}

// What readTrace() needs besides the events: `tracks` in the order of their numbers, what the tokens became,
// and the run that failed.
std::string describeProcess(size_t program, int rank, const Tracks& tracks, const Trace& trace) {
  std::string text =
      fmt::format("{{\"program\":{},\"rank\":{},\"dropped\":{},\"tracks\":[", program, rank, trace.dropped);
  for (const auto& [key, track] : tracks) {
    const auto& [number, span] = track;
    const int64_t lane = span->lane ? int64_t{span->lane.value} : -1;
    text += fmt::format("{}{{\"worker\":{},\"lane\":{},\"core\":{}}}", number ? "," : "", span->worker, lane,
                        span->core);
  }
  text += "],\n\"routings\":[";
  for (const TracedRouting& routing : trace.routings)
    text += fmt::format("{}{{\"tokens\":{},\"places\":[{}]}}", &routing == &trace.routings[0] ? "" : ",\n",
                        routing.tokens, fmt::join(routing.places, ","));
  return text + "],\n\"failed\":" + (trace.hasFailed() ? describeFailure(trace.failed) : "null") + "}";
}

class Writer {
 public:
  explicit Writer(int64_t origin) : origin_(origin) {}

  void program(const TaskProgram& program) {
    program_ = &program;
    tracks_.clear();
    const std::vector<std::byte> bytes = encode(program);
    programs_ += fmt::format("{}\"{}\"", programs_.empty() ? "" : ",\n", toBase64(bytes));
    ++programCount_;
  }

  // One process, with the next number: a rank of the last program.
  void process(int rank, const std::string& name, const Trace& trace) {
    const size_t pid = processes_++;
    meta(pid, 0, "process_name", fmt::format("\"name\":{}", quoted(name)));
    meta(pid, 0, "process_sort_index", fmt::format("\"sort_index\":{}", pid));
    Tracks& tracks = tracks_.emplace_back();
    for (const TraceSpan& span : trace.spans) tracks.try_emplace(findTrack(*program_, span), 0, &span);
    size_t next = 0;
    for (auto& [key, track] : tracks) {
      track.first = next++;
      meta(pid, track.first, "thread_name",
           fmt::format("\"name\":{}", quoted(trackName(*program_, *track.second))));
      meta(pid, track.first, "thread_sort_index", fmt::format("\"sort_index\":{}", track.first));
    }
    for (const TraceSpan& span : trace.spans) event(pid, tracks[findTrack(*program_, span)].first, span);
    sending(pid, trace);
    dropped_ += trace.dropped;
    described_ += (pid ? ",\n" : "") + describeProcess(programCount_ - 1, rank, tracks, trace);
  }

  // Arrows from the end of a task to the end of the wait that it ended, among the processes of the last
  // program.
  void arrows(const std::vector<Trace>& traces, const std::vector<WaitEnd>& ends) {
    const size_t first = processes_ - traces.size();
    const auto arrow = [&](char phase, size_t rank, const TraceSpan& span, int64_t time) {
      separate();
      fmt::format_to(std::back_inserter(events_),
                     "{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"id\":{},\"name\":\"ends wait\","
                     "\"cat\":\"signal\"{}}}",
                     phase, first + rank, tracks_[rank].at(findTrack(*program_, span)).first, time / 1000,
                     time % 1000, arrows_, phase == 'f' ? ",\"bp\":\"e\"" : "");
    };
    for (const WaitEnd& end : ends) {
      const TraceSpan &task = traces[end.rank].spans[end.span],
                      &wait = traces[end.waitRank].spans[end.waitSpan];
      // the signal is out before the task's end is noted
      const int64_t from = std::max(task.begin, std::min(task.end, wait.end) - 1) - origin_;
      arrow('s', end.rank, task, from);
      arrow('f', end.waitRank, wait, std::max(from, wait.end - 1 - origin_));
      ++arrows_;
    }
  }

  std::string finish(const std::string& program, const std::string& target, std::string_view clock) {
    return fmt::format(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"program\":{},\"target\":{},\"dropped_spans\":{}}},\n"
        "\"sluice\":{{\"clock\":{},\"origin\":{},\n\"programs\":[{}],\n\"processes\":[{}]}},\n"
        "\"traceEvents\":[\n{}\n]}}\n",
        quoted(program), quoted(target), dropped_, quoted(clock), clock.empty() ? 0 : origin_, programs_,
        described_, fmt::to_string(events_));
  }

 private:
  void separate() {
    if (events_.size() > 0) fmt::format_to(std::back_inserter(events_), ",\n");
  }

  void meta(size_t pid, size_t track, const char* name, const std::string& args) {
    separate();
    fmt::format_to(std::back_inserter(events_),
                   "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{{}}}}}", pid, track, name,
                   args);
  }

  void event(size_t pid, size_t track, const TraceSpan& span) {
    separate();
    const int64_t begin = span.begin - origin_, length = std::max<int64_t>(0, span.end - span.begin);
    const auto [name, category, args] = describe(span);
    fmt::format_to(std::back_inserter(events_),
                   "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},\"name\":{},"
                   "\"cat\":\"{}\",\"args\":{{{}}}}}",
                   pid, track, begin / 1000, begin % 1000, length / 1000, length % 1000, quoted(name),
                   category, args);
  }

  // A counter of the rows that tasks of the rank are sending.
  void sending(size_t pid, const Trace& trace) {
    std::map<int64_t, int64_t> changes;
    for (const TraceSpan& span : trace.spans) {
      if (span.kind != SpanKind::kTask || !isRemote(program_->at(program_->at(span.family).space).kind))
        continue;
      changes[span.begin] += span.rows;
      changes[span.end] -= span.rows;
    }
    int64_t rows = 0;
    for (const auto& [at, change] : changes) {
      rows += change;
      separate();
      fmt::format_to(
          std::back_inserter(events_),
          "{{\"ph\":\"C\",\"pid\":{},\"ts\":{}.{:03},\"name\":\"sending\",\"args\":{{\"rows\":{}}}}}", pid,
          (at - origin_) / 1000, (at - origin_) % 1000, rows);
    }
  }

  struct Description {
    std::string name;
    const char* category;
    std::string args;
  };

  Description describe(const TraceSpan& span) const {
    const std::string& entry = program_->at(span.entry).name;
    const std::string ofEntry = fmt::format("\"entry\":{}", quoted(entry));
    const std::string ofStep = fmt::format("{},\"step\":{}", ofEntry, span.slot);
    switch (span.kind) {
      case SpanKind::kTask:
        return describeTask(span);
      case SpanKind::kWait:
        return describeWait(span);
      case SpanKind::kStart:
        return {"start", "idle", ofEntry};
      case SpanKind::kEnd:
        return {"end", "idle", ofEntry};
      case SpanKind::kRun:
        return {entry, "step", fmt::format("\"step\":{},\"routing\":{}", span.slot, span.index)};
      case SpanKind::kBind:
        return {"bind", "step", ofStep};
      case SpanKind::kExchange:
        return {"exchange", "step", ofStep};
      case SpanKind::kStuck:
        if (span.lane.none()) return {"stuck", "step", ofStep};
        return describeWait(span);
    }
    return {"?", "?", ""};
  }

  Description describeTask(const TraceSpan& span) const {
    const TaskWork work = countWork(*program_, span.family, span.tile, span.rows);
    return {program_->at(span.family).name, "task",
            fmt::format("\"slot\":{},\"tile\":{},\"rows\":{},\"bytes\":{:.0f},\"flops\":{:.0f},\"worker\":{}",
                        span.slot, span.tile, span.rows, work.bytes, work.flops, span.worker)};
  }

  Description describeWait(const TraceSpan& span) const {
    const std::string& family = program_->at(span.family).name;
    const std::string event = span.event ? program_->at(span.event).name : "";
    const bool isStuck = span.kind == SpanKind::kStuck;
    return {(isStuck ? "stuck " : "wait ") + event, isStuck ? "stuck" : "wait",
            fmt::format("\"cause\":\"{}\",\"event\":{},\"index\":{},\"family\":{},\"slot\":{},\"tile\":{},"
                        "\"worker\":{}",
                        causeOfWait(*program_, span.event), quoted(event), span.index, quoted(family),
                        span.slot, span.tile, span.worker)};
  }

  const TaskProgram* program_ = nullptr;  // the last one
  std::vector<Tracks> tracks_;            // of its processes
  size_t programCount_ = 0;
  std::string programs_, described_;  // JSON, without brackets
  size_t arrows_ = 0;
  const int64_t origin_;
  size_t processes_ = 0;
  int64_t dropped_ = 0;
  fmt::memory_buffer events_;
};

}  // namespace

bool isArrival(const TaskProgram& program, EventId event) { return event && program.at(event).remote; }

const char* causeOfWait(const TaskProgram& program, EventId event) {
  return isArrival(program, event) ? "arrival" : "producer";
}

std::string chromeTrace(const TaskProgram& program, const std::vector<Trace>& ranks, std::string_view clock) {
  return chromeTrace({{&program, 0, ranks}}, clock);
}

std::string chromeTrace(const std::vector<ProgramTrace>& programs, std::string_view clock) {
  std::optional<int64_t> origin;
  std::string names;
  for (const ProgramTrace& each : programs) {
    names += (names.empty() ? "" : ", ") + each.program->name;
    for (const Trace& trace : each.ranks)
      for (const TraceSpan& span : trace.spans) origin = std::min(origin.value_or(span.begin), span.begin);
  }
  Writer writer(origin.value_or(0));
  for (const ProgramTrace& each : programs) {
    writer.program(*each.program);
    for (size_t i = 0; i < each.ranks.size(); ++i) {
      const int number = each.firstRank + static_cast<int>(i);
      const std::string rank = fmt::format("rank {}", number);
      writer.process(number, programs.size() == 1 ? rank : rank + ": " + each.program->name, each.ranks[i]);
    }
    writer.arrows(each.ranks, each.waitEnds);
  }
  return writer.finish(names, programs.front().program->target, clock);
}

}  // namespace sluice

#include "tools/trace/read_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/base64.h"
#include "runtime/base/one_line.h"
#include "runtime/program/words.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr double kMaxMicroseconds = 1e12;              // 11 days; exact to the nanosecond
constexpr int64_t kMaxNanoseconds = int64_t{1} << 62;  // of all spans together, so that sums are numbers

std::string shortened(const Json& value) {
  std::string text = oneLine(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Members of JSON objects that must be there and of a kind. Of what is not, the first error is kept.
class Fields {
 public:
  const Json& at(const Json& object, const char* key) const {
    static const Json kNone;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : kNone;
  }

  int64_t whole(const Json& object, const char* key, int64_t low, int64_t high) {
    const Json& value = at(object, key);
    if (isWhole(value, low, high)) return value.get<int64_t>();
    refuse(key, value, fmt::format("a number of {} to {}", low, high));
    return low;
  }

  int64_t nanoseconds(const Json& object, const char* key) {
    const Json& value = at(object, key);
    if (value.is_number() && value.get<double>() >= 0 && value.get<double>() < kMaxMicroseconds)
      return std::llround(value.get<double>() * 1e3);
    refuse(key, value, "microseconds");
    return 0;
  }

  std::string text(const Json& object, const char* key) {
    const Json& value = at(object, key);
    if (value.is_string()) return value.get<std::string>();
    refuse(key, value, "a text");
    return {};
  }

  const Json& list(const Json& object, const char* key) {
    static const Json kEmpty = Json::array();
    const Json& value = at(object, key);
    if (value.is_array()) return value;
    refuse(key, value, "a list");
    return kEmpty;
  }

  void refuse(const char* key, const Json& value, const std::string& expected) {
    const std::string found = value.is_null() ? "nothing" : shortened(value);
    fail(fmt::format("{}: found {}, expected {}", key, found, expected));
  }
  void fail(std::string message) {
    if (!error_) error_ = Error{where_.empty() ? std::move(message) : where_ + ": " + message};
  }
  void nowAt(std::string where) { where_ = std::move(where); }
  const std::optional<Error>& error() const { return error_; }

  static bool isWhole(const Json& value, int64_t low, int64_t high) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
      return false;
    return value.get<int64_t>() >= low && value.get<int64_t>() <= high;
  }

 private:
  std::string where_;
  std::optional<Error> error_;
};

struct Track {
  int32_t worker = -1;
  LaneId lane;
  int32_t core = 0;
};

struct Process {
  size_t program = 0;
  size_t rank = 0;  // in TracedProgram::ranks
  std::vector<Track> tracks;
};

class Reader {
 public:
  // Events are dropped as soon as they are read: as JSON they take ten times the memory of spans.
  Expected<TraceFile> read(const std::string& content) {
    std::string key;  // of the root
    int64_t events = 0;
    const Json::parser_callback_t take = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth == 1 && event == Json::parse_event_t::key) key = parsed.get<std::string>();
      if (fields_.error()) return true;
      if (key == "traceEvents" && depth == 2 && event == Json::parse_event_t::object_end) {
        fields_.nowAt(fmt::format("event {} of traceEvents", events++));
        readEvent(parsed);
        return false;
      }
      if (key == "sluice" && depth == 1 && event == Json::parse_event_t::object_end) readPrograms(parsed);
      return true;
    };
    const Json root = Json::parse(content, take, false);
    if (!root.is_object()) return Error{"found no JSON object, expected a trace of sluice run"};
    if (fields_.error()) return *fields_.error();
    if (programs_.empty())
      return Error{"found no programs under 'sluice', expected a trace of sluice run of this version"};
    for (TracedProgram& program : programs_)
      for (Trace& trace : program.ranks) sortSpans(trace);
    return TraceFile{std::move(clock_), origin_, std::move(programs_)};
  }

 private:
  void readPrograms(const Json& described) {
    fields_.nowAt("");
    if (!programs_.empty()) return fields_.fail("found 'sluice' twice, expected it once");
    clock_ = fields_.text(described, "clock");
    origin_ = fields_.whole(described, "origin", 0, kMaxNanoseconds);
    for (const Json& program : fields_.list(described, "programs")) {
      fields_.nowAt(fmt::format("program {} of 'sluice'", programs_.size()));
      const auto bytes =
          program.is_string() ? fromBase64(program.get_ref<const std::string&>()) : std::nullopt;
      if (!bytes) return fields_.fail(fmt::format("found {}, expected base64", shortened(program)));
      Expected<Program> loaded = Program::fromBytes(*bytes);
      if (!loaded) return fields_.fail(loaded.error().message);
      programs_.push_back({std::move(*loaded), 0, {}});
    }
    for (const Json& process : fields_.list(described, "processes")) {
      fields_.nowAt(fmt::format("process {} of 'sluice'", processes_.size()));
      readProcess(process);
      if (fields_.error()) return;
    }
  }

  void readProcess(const Json& described) {
    Process process;
    const int64_t most = std::ssize(programs_) - 1;
    process.program = static_cast<size_t>(fields_.whole(described, "program", 0, most));
    if (fields_.error()) return;
    TracedProgram& traced = programs_[process.program];
    const TaskProgram& program = traced.program.tables();
    process.rank = traced.ranks.size();
    const bool isFirst = process.rank == 0;
    const int64_t next = traced.firstRank + static_cast<int64_t>(process.rank);
    const int64_t rank =
        fields_.whole(described, "rank", isFirst ? 0 : next, isFirst ? program.mesh.peers() - 1 : next);
    if (isFirst) traced.firstRank = static_cast<int>(rank);
    Trace& trace = traced.ranks.emplace_back();
    trace.dropped = fields_.whole(described, "dropped", 0, std::numeric_limits<int64_t>::max());
    for (const Json& track : fields_.list(described, "tracks"))
      process.tracks.push_back(readTrack(program, track));
    for (const Json& routing : fields_.list(described, "routings"))
      trace.routings.push_back(readRouting(program, routing));
    if (const Json& failed = fields_.at(described, "failed"); !failed.is_null())
      trace.failed = readFailure(program, failed);
    processes_.push_back(std::move(process));
  }

  FailedRun readFailure(const TaskProgram& program, const Json& described) {
    FailedRun failed;
    failed.entry = id<EntryId>(described, "entry", program.entries);
    failed.step = fields_.whole(described, "step", 0, kMaxNanoseconds);
    failed.message = fields_.text(described, "message");
    if (failed.message.empty()) fields_.fail("message: found an empty text, expected why the run failed");
    for (const Json& next : fields_.list(described, "next")) {
      if (fields_.error()) break;
      failed.next.push_back(readNext(program, next));
    }
    return failed;
  }

  NextTask readNext(const TaskProgram& program, const Json& described) {
    NextTask next;
    next.at.lane = id<LaneId>(described, "lane", program.lanes);
    next.at.core = findCoreOfLane(program, next.at.lane, fields_.at(described, "core"));
    next.family = id<FamilyId>(described, "family", program.families);
    next.slot = fields_.whole(described, "slot", 0, kMost);
    if (fields_.error()) return next;
    next.tile = static_cast<int32_t>(fields_.whole(described, "tile", 0, program.at(next.family).tiles - 1));
    if (fields_.at(described, "event") != -1) next.event = id<EventId>(described, "event", program.events);
    next.index = fields_.whole(described, "index", 0, kMost);
    next.have = static_cast<uint64_t>(fields_.whole(described, "have", 0, kMaxNanoseconds));
    next.need = static_cast<uint64_t>(fields_.whole(described, "need", 0, kMaxNanoseconds));
    for (const Json& rank : fields_.list(described, "ranks")) {
      if (!Fields::isWhole(rank, 0, program.mesh.peers() - 1)) {
        fields_.refuse("ranks", rank, fmt::format("a number of 0 to {}", program.mesh.peers() - 1));
        break;
      }
      next.ranks.push_back(rank.get<int32_t>());
    }
    for (const Json& core : fields_.list(described, "cores")) {
      const bool isPair = core.is_array() && core.size() == 2;
      if (!isPair || !Fields::isWhole(core[0], 0, std::ssize(program.lanes) - 1)) {
        fields_.refuse("cores", core, "a pair of lane and core");
        break;
      }
      const LaneId lane{core[0].get<uint32_t>()};
      next.cores.push_back({lane, findCoreOfLane(program, lane, core[1])});
    }
    return next;
  }

  // The number of an element of `all`.
  template <class Id, class T>
  Id id(const Json& object, const char* key, const std::vector<T>& all) {
    return Id{static_cast<uint32_t>(fields_.whole(object, key, 0, std::ssize(all) - 1))};
  }

  // Reads one of the cores that have a seat in the lane.
  int32_t findCoreOfLane(const TaskProgram& program, LaneId lane, const Json& value) {
    if (fields_.error()) return 0;
    const int64_t first = program.at(lane).firstCore, last = first + std::ssize(program.at(lane).seats) - 1;
    if (Fields::isWhole(value, first, last)) return value.get<int32_t>();
    fields_.refuse("core", value, fmt::format("a number of {} to {}", first, last));
    return 0;
  }

  Track readTrack(const TaskProgram& program, const Json& described) {
    Track track;
    track.worker = static_cast<int32_t>(fields_.whole(described, "worker", -1, 1 << 16));
    const int64_t lane = fields_.whole(described, "lane", -1, std::ssize(program.lanes) - 1);
    if (lane < 0) return track;
    track.lane = LaneId{static_cast<uint32_t>(lane)};
    track.core = findCoreOfLane(program, track.lane, fields_.at(described, "core"));
    return track;
  }

  TracedRouting readRouting(const TaskProgram& program, const Json& described) {
    TracedRouting routing;
    routing.tokens = static_cast<int32_t>(fields_.whole(described, "tokens", 0, program.maxTokens));
    const Json& places = fields_.list(described, "places");
    const auto pairs = static_cast<size_t>(routing.tokens) * static_cast<size_t>(program.topK);
    if (places.size() != pairs)
      fields_.fail(
          fmt::format("places: found {}, expected {} of {} tokens", places.size(), pairs, routing.tokens));
    routing.places.reserve(places.size());
    for (const Json& place : places) {
      if (!Fields::isWhole(place, -1, program.experts - 1)) {
        fields_.refuse("places", place, fmt::format("a number of -1 to {}", program.experts - 1));
        break;
      }
      routing.places.push_back(place.get<int32_t>());
    }
    return routing;
  }

  void readEvent(const Json& event) {
    if (fields_.text(event, "ph") != "X") return;
    if (processes_.empty()) return fields_.fail("found a span before 'sluice', expected that first");
    Process& process =
        processes_[static_cast<size_t>(fields_.whole(event, "pid", 0, std::ssize(processes_) - 1))];
    if (process.tracks.empty()) return fields_.fail("found a span of a process without tracks");
    const Track& track =
        process.tracks[static_cast<size_t>(fields_.whole(event, "tid", 0, std::ssize(process.tracks) - 1))];
    const TaskProgram& program = programs_[process.program].program.tables();
    Trace& trace = programs_[process.program].ranks[process.rank];
    TraceSpan span;
    span.begin = fields_.nanoseconds(event, "ts");
    span.end = span.begin + fields_.nanoseconds(event, "dur");
    span.worker = track.worker;
    const std::string name = fields_.text(event, "name"), category = fields_.text(event, "cat");
    const Json& args = fields_.at(event, "args");
    const std::map<std::string, SpanKind> ofTasks = {
        {"task", SpanKind::kTask}, {"wait", SpanKind::kWait}, {"stuck", SpanKind::kStuck}};
    if (const auto kind = ofTasks.find(category); kind != ofTasks.end())
      readTask(program, track, name, kind->second, args, span);
    else if (category == "idle" || category == "step")
      readOther(program, name, category, args, trace, span);
    else
      fields_.fail(
          fmt::format("cat: found '{}', expected task, wait, stuck, idle or step", oneLine(category)));
    total_ += span.end - span.begin;
    if (total_ > kMaxNanoseconds) fields_.fail("found spans of more than a century in all");
    if (!fields_.error()) trace.spans.push_back(span);
  }

  void readTask(const TaskProgram& program, const Track& track, const std::string& name, SpanKind kind,
                const Json& args, TraceSpan& span) {
    if (track.lane.none()) return fields_.fail("found a task or wait on a track without a lane");
    const bool isTask = kind == SpanKind::kTask;
    span.kind = kind;
    span.lane = track.lane;
    span.core = track.core;
    span.entry = program.at(track.lane).entry;
    const std::string family = isTask ? name : fields_.text(args, "family");
    span.family = find<FamilyId>(program.families, span.entry, family);
    if (span.family.none())
      return fields_.fail(fmt::format("found family '{}', expected one of entry '{}'", oneLine(family),
                                      program.at(span.entry).name));
    span.slot = fields_.whole(args, "slot", 0, kMost);
    span.tile = static_cast<int32_t>(fields_.whole(args, "tile", 0, program.at(span.family).tiles - 1));
    if (isTask) {
      span.rows = static_cast<int32_t>(fields_.whole(args, "rows", 0, kMost));
      return;
    }
    const std::string event = fields_.text(args, "event");
    span.event = find<EventId>(program.events, span.entry, event);
    if (span.event.none() && !event.empty())
      fields_.fail(fmt::format("found event '{}', expected one of entry '{}'", oneLine(event),
                               program.at(span.entry).name));
    span.index = fields_.whole(args, "index", 0, kMost);
  }

  void readOther(const TaskProgram& program, const std::string& name, const std::string& category,
                 const Json& args, const Trace& trace, TraceSpan& span) {
    if (category == "step") span.slot = fields_.whole(args, "step", 0, kMaxNanoseconds);
    const bool isRun = category == "step" && !fields_.at(args, "routing").is_null();
    const std::string entry = isRun ? name : fields_.text(args, "entry");
    for (uint32_t e = 0; e < program.entries.size(); ++e)
      if (program.entries[e].name == entry) span.entry = EntryId{e};
    if (span.entry.none())
      return fields_.fail(fmt::format("found entry '{}', expected one of the program", oneLine(entry)));
    if (isRun) {
      span.kind = SpanKind::kRun;
      span.index = fields_.whole(args, "routing", -1, std::ssize(trace.routings) - 1);
      return;
    }
    const std::map<std::string, SpanKind> kinds = {{"step bind", SpanKind::kBind},
                                                   {"step exchange", SpanKind::kExchange},
                                                   {"step stuck", SpanKind::kStuck},
                                                   {"idle start", SpanKind::kStart},
                                                   {"idle end", SpanKind::kEnd}};
    const auto kind = kinds.find(category + " " + name);
    if (kind == kinds.end())
      return fields_.fail(fmt::format("found {} '{}', expected bind, exchange, stuck, start or end", category,
                                      oneLine(name)));
    span.kind = kind->second;
  }

  // By name in an entry; none if there is none.
  template <class Id, class T>
  static Id find(const std::vector<T>& all, EntryId entry, const std::string& name) {
    for (uint32_t i = 0; i < all.size(); ++i)
      if (all[i].entry == entry && all[i].name == name) return Id{i};
    return {};
  }

  Fields fields_;
  std::string clock_;
  int64_t origin_ = 0;
  std::vector<TracedProgram> programs_;
  std::vector<Process> processes_;
  int64_t total_ = 0;  // nanoseconds of all spans
};

}  // namespace

void sortSpans(Trace& trace) {
  std::ranges::stable_sort(
      trace.spans, {}, [](const TraceSpan& span) { return std::tuple(span.worker, span.begin, span.end); });
}

Expected<TraceFile> parseTrace(const std::string& text) { return Reader().read(text); }

}  // namespace sluice::tools

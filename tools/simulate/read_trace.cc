#include "tools/simulate/read_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/one_line.h"
#include "runtime/program/words.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::json;

// Of a trace event, with empty and negative values for what is missing.
std::string textOf(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}
double numberOf(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : -1;
}

class Reader {
 public:
  explicit Reader(const TaskProgram& program) : program_(program) {
    for (uint32_t l = 0; l < program.lanes.size(); ++l) {
      const Lane& lane = program.lanes[l];
      for (int32_t core = 0; core < static_cast<int32_t>(lane.seats.size()); ++core)
        entryOfTrack_[fmt::format("{} {}/{}", text::coreName(lane.core, lane.firstCore + core),
                                  program.at(lane.entry).name, lane.name)] = lane.entry;
    }
    for (uint32_t f = 0; f < program.families.size(); ++f)
      families_[{program.families[f].entry.value, program.families[f].name}] = f;
    run_.families.resize(program.families.size());
    runs_.resize(program.entries.size());
  }

  Status read(const Json& root) {
    const auto events = root.find("traceEvents");
    if (events == root.end() || !events->is_array())
      return Error{"found no list 'traceEvents', expected a trace of sluice run"};
    const Json other = root.value("otherData", Json::object());
    if (const std::string name = textOf(other, "program"); name != program_.name)
      return Error{fmt::format("found a trace of program '{}', expected '{}'", oneLine(name), program_.name)};
    if (const double dropped = numberOf(other, "dropped_spans"); dropped != 0)
      return Error{fmt::format("found {} dropped spans, expected 0", dropped)};
    for (const Json& event : *events)
      if (event.is_object() && textOf(event, "ph") == "M" && textOf(event, "name") == "thread_name")
        tracks_[trackOf(event)] = textOf(event.value("args", Json::object()), "name");
    size_t place = 0;
    for (const Json& event : *events) {
      if (Status done = add(event); !done)
        return Error{fmt::format("event {} of traceEvents: {}", place, done.error().message)};
      ++place;
    }
    return {};
  }

  Expected<MeasuredRun> finish() {
    for (uint32_t e = 0; e < runs_.size(); ++e) {
      if (runs_[e].empty()) continue;
      if (runs_[e].size() != static_cast<size_t>(program_.mesh.peers()))
        return Error{fmt::format("found runs of entry '{}' at {} ranks, expected {}",
                                 program_.entries[e].name, runs_[e].size(), program_.mesh.peers())};
      double longest = 0;
      for (const auto& [rank, run] : runs_[e]) {
        double bind = 0;
        for (const Span& span : binds_)
          if (span.rank == rank && span.begin >= run.begin && span.begin <= run.begin + run.length)
            bind = span.length;
        longest = std::max(longest, run.length - bind);
      }
      run_.entries.push_back({EntryId{e}, longest});
    }
    if (run_.entries.empty()) return Error{"found no run of an entry, expected one of each"};
    return std::move(run_);
  }

 private:
  struct Span {
    int64_t rank = 0;
    double begin = 0;  // seconds
    double length = 0;
  };

  static std::pair<int64_t, int64_t> trackOf(const Json& event) {
    const auto whole = [&](const char* key) {
      return static_cast<int64_t>(std::clamp(numberOf(event, key), -1.0, 1e9));
    };
    return {whole("pid"), whole("tid")};
  }

  Status add(const Json& event) {
    if (!event.is_object()) return Error{"found no object, expected one"};
    const std::string category = textOf(event, "cat");
    if (textOf(event, "ph") != "X" || (category != "task" && category != "step" && category != "idle"))
      return {};
    const Span span{trackOf(event).first, numberOf(event, "ts") * 1e-6, numberOf(event, "dur") * 1e-6};
    if (span.rank < 0 || span.rank >= program_.mesh.peers() || span.begin < 0 || span.length < 0)
      return Error{fmt::format("found pid {}, ts {} s, dur {} s, expected a rank below {}, and times",
                               span.rank, span.begin, span.length, program_.mesh.peers())};
    if (category == "task") return addTask(event, span);
    return category == "step" ? addStep(textOf(event, "name"), span) : Status{};
  }

  Status addTask(const Json& event, const Span& span) {
    const std::string& track = tracks_[trackOf(event)];
    const auto entry = entryOfTrack_.find(track);
    if (entry == entryOfTrack_.end())
      return Error{
          fmt::format("found track '{}', expected a core and a lane of the program", oneLine(track))};
    const std::string name = textOf(event, "name");
    const auto family = families_.find({entry->second.value, name});
    if (family == families_.end())
      return Error{fmt::format("found family '{}', expected one of entry '{}'", oneLine(name),
                               program_.at(entry->second).name)};
    MeasuredFamily& sum = run_.families[family->second];
    ++sum.tasks;
    sum.seconds += span.length;
    const double worker = numberOf(event.value("args", Json::object()), "worker");
    run_.workers = std::max(run_.workers, static_cast<int>(std::clamp(worker, 0.0, 1e6)) + 1);
    return {};
  }

  Status addStep(const std::string& name, const Span& span) {
    if (name == "exchange") return {};
    if (name == "bind") {
      binds_.push_back(span);
      return {};
    }
    for (uint32_t e = 0; e < program_.entries.size(); ++e) {
      if (program_.entries[e].name != name) continue;
      if (runs_[e].emplace(span.rank, span).second) return {};
      return Error{fmt::format("found a second run of entry '{}' at rank {}, expected one", name, span.rank)};
    }
    return Error{fmt::format("found a run of entry '{}', expected one of the program", oneLine(name))};
  }

  const TaskProgram& program_;
  std::map<std::string, EntryId> entryOfTrack_;
  std::map<std::pair<uint32_t, std::string>, uint32_t> families_;
  std::map<std::pair<int64_t, int64_t>, std::string> tracks_;
  std::vector<std::map<int64_t, Span>> runs_;  // by entry, then rank
  std::vector<Span> binds_;
  MeasuredRun run_;
};

}  // namespace

Expected<MeasuredRun> readTrace(const TaskProgram& program, const std::string& path) {
  const Expected<std::string> content = readText(path);
  if (!content) return content.error();
  const Json root = Json::parse(*content, nullptr, false);
  const auto inFile = [&](const Error& error) { return Error{fmt::format("{}: {}", path, error.message)}; };
  if (!root.is_object()) return inFile(Error{"found no JSON object, expected a trace of sluice run"});
  Reader reader(program);
  if (Status done = reader.read(root); !done) return inFile(done.error());
  Expected<MeasuredRun> run = reader.finish();
  return run ? std::move(run) : inFile(run.error());
}

}  // namespace sluice::tools

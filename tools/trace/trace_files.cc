#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "runtime/base/rank_path.h"
#include "tools/cli/files.h"
#include "tools/trace/read_trace.h"

namespace sluice::tools {
namespace {

constexpr int kMaxRanks = 4096;                  // whose files are looked for
constexpr int64_t kMaxApart = int64_t{1} << 60;  // ns between the origins of files: 36 years

struct NamedFile {
  std::string path;
  TraceFile file;
};

Expected<TraceFile> readFile(const std::string& path) {
  const Expected<std::string> content = readText(path);
  if (!content) return content.error();
  Expected<TraceFile> file = parseTrace(*content);
  if (!file) return Error{fmt::format("{}: {}", path, file.error().message)};
  return file;
}

Expected<std::vector<NamedFile>> readFiles(const std::string& pattern) {
  const Expected<std::vector<std::string>> paths = rankPaths(pattern, kMaxRanks);
  if (!paths) return paths.error();
  std::vector<NamedFile> files;
  for (const std::string& path : *paths) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    Expected<TraceFile> file = readFile(path);
    if (!file) return file.error();
    files.push_back({path, std::move(*file)});
  }
  if (files.empty())
    return Error{
        fmt::format("{}: found no such file, expected {} or that of another rank", pattern, paths->front())};
  return files;
}

// Which program, and which one of several equal ones.
using ProgramKey = std::pair<uint64_t, int>;

std::vector<ProgramKey> listProgramKeys(const TraceFile& file) {
  std::map<uint64_t, int> count;
  std::vector<ProgramKey> keys;
  for (const TracedProgram& each : file.programs) {
    const uint64_t fingerprint = each.program.verified().fingerprint();
    keys.emplace_back(fingerprint, count[fingerprint]++);
  }
  return keys;
}

// The end of each exchange, by program and step.
std::map<std::pair<ProgramKey, int64_t>, int64_t> findExchanges(const TraceFile& file) {
  const std::vector<ProgramKey> keys = listProgramKeys(file);
  std::map<std::pair<ProgramKey, int64_t>, int64_t> ends;
  for (size_t p = 0; p < keys.size(); ++p)
    for (const Trace& trace : file.programs[p].ranks)
      for (const TraceSpan& span : trace.spans)
        if (span.kind == SpanKind::kExchange) ends[{keys[p], span.slot}] = span.end;
  return ends;
}

int64_t findEnd(const TraceFile& file) {
  int64_t end = 0;
  for (const TracedProgram& each : file.programs)
    for (const Trace& trace : each.ranks)
      for (const TraceSpan& span : trace.spans) end = std::max(end, span.end);
  return end;
}

// What to add to the times of a file so that they count on the first file's clock: all ranks leave an
// exchange at about the same moment, and a failure ends all of them.
int64_t findOffset(const TraceFile& file, const TraceFile& first) {
  if (!file.clock.empty() && file.clock == first.clock) return file.origin - first.origin;
  const auto own = findExchanges(file), others = findExchanges(first);
  int64_t offset = findEnd(first) - findEnd(file), latest = -1;
  for (const auto& [step, end] : own)
    if (const auto other = others.find(step); other != others.end() && other->second > latest) {
      latest = other->second;
      offset = latest - end;
    }
  return offset;
}

// The programs of all files, in the order of the first file that has them.
class Joined {
 public:
  // A rank that a program has already is one of another group of ranks with the same program.
  void add(TraceFile& file, int64_t offset) {
    std::set<size_t> used;  // of programs_, by this file
    for (TracedProgram& from : file.programs) {
      const size_t place = placeFor(from, used);
      used.insert(place);
      for (size_t i = 0; i < from.ranks.size(); ++i) {
        for (TraceSpan& span : from.ranks[i].spans) {
          span.begin += offset;
          span.end += offset;
        }
        const size_t rank = static_cast<size_t>(from.firstRank) + i;
        filled_.emplace(place, rank);
        programs_[place].ranks[rank] = std::move(from.ranks[i]);
      }
    }
  }

  std::vector<TracedProgram> take() { return std::move(programs_); }

 private:
  size_t placeFor(const TracedProgram& from, const std::set<size_t>& used) {
    const auto fits = [&](size_t place) {
      bool isFree = !used.contains(place);
      for (size_t i = 0; i < from.ranks.size(); ++i)
        isFree = isFree && !filled_.contains({place, static_cast<size_t>(from.firstRank) + i});
      return isFree &&
             programs_[place].program.verified().fingerprint() == from.program.verified().fingerprint();
    };
    for (size_t place = 0; place < programs_.size(); ++place)
      if (fits(place)) return place;
    programs_.push_back({from.program, 0, {}});
    programs_.back().ranks.resize(static_cast<size_t>(from.program.ranks()));
    return programs_.size() - 1;
  }

  std::vector<TracedProgram> programs_;
  std::set<std::pair<size_t, size_t>> filled_;  // program and rank
};

}  // namespace

Expected<std::vector<TracedProgram>> readTrace(const std::string& path) {
  if (!hasRank(path)) {
    Expected<TraceFile> file = readFile(path);
    if (!file) return file.error();
    return std::move(file->programs);
  }
  Expected<std::vector<NamedFile>> files = readFiles(path);
  if (!files) return files.error();
  std::vector<int64_t> offsets;
  for (const NamedFile& each : *files) {
    offsets.push_back(findOffset(each.file, files->front().file));
    if (std::abs(offsets.back()) > kMaxApart)
      return Error{fmt::format("{}: found times {} s from those of {}, expected those of one job", each.path,
                               offsets.back() / 1'000'000'000, files->front().path)};
  }
  Joined joined;
  for (size_t i = 0; i < files->size(); ++i) joined.add((*files)[i].file, offsets[i]);
  return joined.take();
}

}  // namespace sluice::tools

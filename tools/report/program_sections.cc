// The parts of a report that a program has without a run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "compiler/analysis/memory.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "runtime/program/text_names.h"
#include "runtime/program/words.h"
#include "tools/report/sections.h"
#include "tools/report/tables.h"

namespace sluice::tools {
namespace {

// A stretch of families or of time in which a buffer is needed.
using Stretch = std::pair<double, double>;

std::vector<FamilyId> listFamilies(const TaskProgram& program, EntryId entry) {
  std::vector<FamilyId> families;
  for (uint32_t f = 0; f < program.families.size(); ++f)
    if (program.families[f].entry == entry) families.push_back(FamilyId{f});
  return families;
}

// When each family of an entry runs: its number, or the milliseconds of its first run at the first rank.
class Axis {
 public:
  Axis(const ReportSource& source, EntryId entry, const std::vector<FamilyId>& families)
      : times_(source.program.tables().families.size()), end_(static_cast<double>(families.size())) {
    if (source.hasRun()) readTimes(source.ranks.front(), entry);
    if (isTime_) return;
    for (size_t i = 0; i < families.size(); ++i)
      times_[families[i].value] = Stretch(static_cast<double>(i), static_cast<double>(i + 1));
  }

  bool isTime() const { return isTime_; }
  double end() const { return end_; }
  const std::optional<Stretch>& at(FamilyId family) const { return times_[family.value]; }

 private:
  void readTimes(const Trace& trace, EntryId entry) {
    const auto run = std::ranges::find_if(trace.spans, [&](const TraceSpan& span) {
      return span.kind == SpanKind::kRun && span.entry == entry;
    });
    if (run == trace.spans.end()) return;
    isTime_ = true;
    const auto since = [&](int64_t time) { return static_cast<double>(time - run->begin) * 1e-6; };
    end_ = since(run->end);
    for (const TraceSpan& span : trace.spans) {
      if (span.kind != SpanKind::kTask || span.entry != entry || span.begin < run->begin ||
          span.begin >= run->end)
        continue;
      std::optional<Stretch>& time = times_[span.family.value];
      if (!time) time = Stretch(since(span.begin), since(span.end));
      time->first = std::min(time->first, since(span.begin));
      time->second = std::max(time->second, since(span.end));
    }
  }

  std::vector<std::optional<Stretch>> times_;  // by FamilyId; none: it had no task
  double end_;
  bool isTime_ = false;
};

// From the first family that uses the buffer to the last; all of the entry where it is saved, and from its
// beginning where other ranks may write at any time.
std::optional<Stretch> findLifetime(const TaskProgram& program, const std::vector<FamilyId>& families,
                                    const Axis& axis, BufferId id, const Region& region) {
  std::optional<Stretch> life;
  bool isWritten = false;
  for (const FamilyId family : families) {
    const auto uses = [&](const std::vector<BufferId>& all) {
      return std::ranges::find(all, id) != all.end();
    };
    const bool writes = uses(program.at(family).writes);
    if ((!writes && !uses(program.at(family).reads)) || !axis.at(family)) continue;
    isWritten = isWritten || writes;
    if (!life) life = axis.at(family);
    life->first = std::min(life->first, axis.at(family)->first);
    life->second = std::max(life->second, axis.at(family)->second);
  }
  if (!life) return life;
  if (region.symmetric || (region.saved && !isWritten)) life->first = 0;
  if (region.saved && isWritten) life->second = axis.end();
  return life;
}

double balanced(const TaskProgram& program, Extent extent, int64_t bytes) {
  return inBalancedStep(program, sizeFormula(extent, bytes));
}

Json entryMemory(const ReportSource& source, EntryId entry) {
  const TaskProgram& program = source.program.tables();
  const std::vector<FamilyId> families = listFamilies(program, entry);
  const Axis axis(source, entry, families);
  Json regions = Json::array(), buffers = Json::array(), names = Json::array();
  for (const FamilyId family : families) names.push_back(text::nameInEntry(program, program.at(family)));
  for (uint32_t r = 0; r < program.regions.size(); ++r) {
    const Region& region = program.regions[r];
    const size_t before = buffers.size();
    for (uint32_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (buffer.region != RegionId{r}) continue;
      const auto life = findLifetime(program, families, axis, BufferId{b}, region);
      if (!life) continue;
      buffers.push_back({{"name", buffer.name},
                         {"region", regions.size()},
                         {"offset", balanced(program, region.extent, buffer.offset)},
                         {"bytes", balanced(program, region.extent, bytesPerUnit(buffer))},
                         {"begin", life->first},
                         {"end", life->second},
                         {"type", text::word(buffer.type)},
                         {"shape", shapeText(buffer)}});
    }
    if (buffers.size() == before) continue;
    const char* const kind = region.symmetric ? "symmetric" : region.saved ? "saved" : "scratch";
    regions.push_back(
        {{"name", region.name}, {"bytes", balanced(program, region.extent, region.stride)}, {"kind", kind}});
  }
  return {{"entry", program.at(entry).name},
          {"axis", axis.isTime() ? "ms" : "family"},
          {"names", names},
          {"regions", regions},
          {"buffers", buffers}};
}

Json entryGraphJson(const TaskProgram& program, EntryId entry) {
  const std::vector<FamilyId> families = listFamilies(program, entry);
  Json nodes = Json::array(), edges = Json::array();
  const auto countTiles = [](const Family& family) {
    return family.tiles == 1 ? std::string("1 tile") : fmt::format("{} tiles", family.tiles);
  };
  for (const FamilyId id : families) {
    const Family& family = program.at(id);
    nodes.push_back({{"family", id.value},
                     {"lines",
                      {text::word(family.op), fmt::format("{} per slot of {}", countTiles(family),
                                                          text::word(program.at(family.space).kind))}}});
  }
  for (size_t from = 0; from < families.size(); ++from)
    for (const EventId event : program.at(families[from]).signals)
      for (size_t to = 0; to < families.size(); ++to)
        if (const auto& waits = program.at(families[to]).waits;
            std::ranges::find(waits, event) != waits.end())
          edges.push_back({{"from", from},
                           {"to", to},
                           {"event", program.at(event).name},
                           {"remote", program.at(event).remote}});
  return {{"entry", program.at(entry).name}, {"nodes", nodes}, {"edges", edges}};
}

enum class Look { kSend, kReturn, kGradient, kProduct, kOther };

Look chooseLook(const TaskProgram& program, const Family& family) {
  const SpaceKind space = program.at(family.space).kind;
  if (isRemote(space)) return space == SpaceKind::kSends ? Look::kSend : Look::kReturn;
  if (findInfo(family.op).isSum()) return Look::kGradient;
  return findInfo(family.op).multiplies() ? Look::kProduct : Look::kOther;
}

}  // namespace

std::vector<std::string> familyColours(const TaskProgram& program) {
  static const std::vector<std::vector<const char*>> kPalettes = {
      {"#e8871e", "#c96a08"},
      {"#f4bd7a", "#e0a050"},
      {"#7a5195", "#b794c9", "#573a6e"},
      {"#2f6db5", "#7fb2e5", "#1c4a80", "#a9c9e8"},
      {"#5a9e4b", "#96c98a", "#3c7030", "#8a9a3c"}};
  std::array<size_t, 5> next{};
  std::vector<std::string> colours;
  for (const Family& family : program.families) {
    const auto look = static_cast<size_t>(chooseLook(program, family));
    colours.emplace_back(kPalettes[look][next[look]++ % kPalettes[look].size()]);
  }
  return colours;
}

Json familiesJson(const TaskProgram& program) {
  const std::vector<std::string> colours = familyColours(program);
  Json families = Json::array();
  for (size_t f = 0; f < program.families.size(); ++f) {
    const Family& family = program.families[f];
    families.push_back({{"name", text::nameInEntry(program, family)},
                        {"op", text::word(family.op)},
                        {"colour", colours[f]}});
  }
  return families;
}

Json graphsJson(const TaskProgram& program) {
  Json graphs = Json::array();
  for (uint32_t e = 0; e < program.entries.size(); ++e) graphs.push_back(entryGraphJson(program, EntryId{e}));
  return graphs;
}

Json memoryJson(const ReportSource& source) {
  Json memory = Json::array();
  for (uint32_t e = 0; e < source.program.tables().entries.size(); ++e)
    memory.push_back(entryMemory(source, EntryId{e}));
  return memory;
}

}  // namespace sluice::tools

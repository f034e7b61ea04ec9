// The tables of a run.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/program/text_names.h"
#include "runtime/program/words.h"
#include "runtime/trace/chrome_trace.h"
#include "tools/report/tables.h"

namespace sluice::tools {
namespace {

constexpr size_t kMaxSlots = 100;

double micro(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }
double percent(int64_t part, int64_t all) {
  return all > 0 ? 100 * static_cast<double>(part) / static_cast<double>(all) : 0;
}
int64_t spanDuration(const TraceSpan& span) { return span.end - span.begin; }

std::string familyName(const TaskProgram& program, FamilyId id) {
  return text::nameInEntry(program, program.at(id));
}

ReportTable familyTable(const TaskProgram& program, const Run& run) {
  int64_t all = 0;
  for (const FamilyTime& family : run.families) all += family.time;
  ReportTable table{"families",
                    "Families",
                    "Time in tasks, of all workers together; rates of one worker.",
                    {{"family", false},
                     {"op", false},
                     {"tasks"},
                     {"ms"},
                     {"%"},
                     {"mean \u00b5s"},
                     {"longest \u00b5s"},
                     {"GFLOP/s"},
                     {"GB/s"}},
                    {}};
  for (uint32_t f = 0; f < run.families.size(); ++f) {
    const FamilyTime& sum = run.families[f];
    if (sum.tasks == 0) continue;
    const double time = static_cast<double>(std::max<int64_t>(1, sum.time));
    table.rows.push_back({familyName(program, FamilyId{f}), text::word(program.families[f].op), sum.tasks,
                          milli(sum.time), percent(sum.time, all),
                          micro(sum.time) / static_cast<double>(sum.tasks), micro(sum.longest),
                          sum.work.flops / time, sum.work.bytes / time});
  }
  return table;
}

ReportTable overlapTable(const ReportSource& source, const Run& run) {
  ReportTable table{
      "overlap",
      "Overlap of communication and computation",
      "T: the step after bind. Tcompute: tasks that do not communicate, over the workers of the rank. Tcomm: "
      "the time in which rows were being sent by or to the rank, or it waited for them. Efficiency: the "
      "larger of the two over T.",
      {{"entry", false}, {"run"}, {"rank", false}, {"Tcomm ms"}, {"Tcompute ms"}, {"T ms"}, {"efficiency %"}},
      {}};
  for (const Overlap& each : run.overlaps)
    table.rows.push_back({source.program.tables().at(each.entry).name, each.step, source.rankName(each.rank),
                          milli(each.communication), milli(each.compute), milli(each.time),
                          100 * each.efficiency()});
  return table;
}

ReportTable criticalTable(const TaskProgram& program, const Run& run) {
  std::map<std::string, std::pair<int64_t, int64_t>> sums;  // number, time
  int64_t all = 0;
  for (const RunSpan& each : run.spans) {
    if (!each.isCritical) continue;
    const TraceSpan& span = *each.span;
    // of a wait only what is left when the task that ended it has ended: the signal's way
    int64_t begin = span.begin;
    if (each.cause != kNoCause)
      begin = std::min(span.end, std::max(begin, run.spans[static_cast<size_t>(each.cause)].span->end));
    const std::string what = span.kind == SpanKind::kTask ? familyName(program, span.family)
                             : each.cause == kNoCause     ? "waits of which no task is known"
                                                          : "from a task's end to that of the wait for it";
    auto& [number, time] = sums[what];
    ++number;
    time += span.end - begin;
    all += span.end - begin;
  }
  ReportTable table{
      "critical",
      "Critical path",
      "Back from the last task of each step, through the tasks that ended waits. What is shorter here makes "
      "the step shorter.",
      {{"what", false}, {"spans"}, {"ms"}, {"%"}},
      {}};
  for (const auto& [what, sum] : sums)
    table.rows.push_back({what, sum.first, milli(sum.second), percent(sum.second, all)});
  std::ranges::stable_sort(table.rows, std::greater(),
                           [](const auto& row) { return row[2].template get<double>(); });
  return table;
}

ReportTable slotTable(const ReportSource& source, const Run& run) {
  const TaskProgram& program = source.program.tables();
  struct Sum {
    int64_t tasks = 0, time = 0, longest = 0;
    int32_t rows = 0, expert = -1;
  };
  std::map<std::tuple<size_t, uint32_t, int64_t>, Sum> sums;  // rank, family, slot
  for (const RunSpan& each : run.spans) {
    const TraceSpan& span = *each.span;
    if (span.kind != SpanKind::kTask) continue;
    Sum& sum = sums[{run.tracks[each.track].rank, span.family.value, span.slot}];
    ++sum.tasks;
    sum.time += spanDuration(span);
    sum.longest = std::max(sum.longest, spanDuration(span));
    sum.rows = std::max(sum.rows, span.rows);
    sum.expert = each.expert;
  }
  std::vector<std::pair<std::tuple<size_t, uint32_t, int64_t>, Sum>> slowest(sums.begin(), sums.end());
  const size_t shown = std::min(kMaxSlots, slowest.size());
  std::ranges::partial_sort(slowest, slowest.begin() + static_cast<std::ptrdiff_t>(shown), std::greater(),
                            [](const auto& each) { return each.second.time; });
  slowest.resize(shown);
  ReportTable table{"slots",
                    "Slowest slots",
                    fmt::format("The {} slots whose tasks took longest in all.", shown),
                    {{"slot", false},
                     {"rank", false},
                     {"expert", false},
                     {"rows"},
                     {"tasks"},
                     {"ms"},
                     {"longest \u00b5s"},
                     {"ns per row"}},
                    {}};
  for (const auto& [key, sum] : slowest) {
    const auto& [rank, family, slot] = key;
    table.rows.push_back({fmt::format("{}[{}]", familyName(program, FamilyId{family}), slot),
                          source.rankName(rank), sum.expert < 0 ? "" : std::to_string(sum.expert), sum.rows,
                          sum.tasks, milli(sum.time), micro(sum.longest),
                          static_cast<double>(sum.time) / std::max(1, sum.rows)});
  }
  return table;
}

ReportTable nextTable(const ReportSource& source) {
  const TaskProgram& program = source.program.tables();
  ReportTable table{"next",
                    "When the run failed",
                    "The next task of each core and lane. Owed by: what its event waits for.",
                    {{"rank", false},
                     {"core", false},
                     {"next task", false},
                     {"event", false},
                     {"have"},
                     {"need"},
                     {"owed by", false}},
                    {}};
  for (size_t rank = 0; rank < source.ranks.size(); ++rank)
    for (const NextTask& next : source.ranks[rank].failed.next) {
      const auto coreName = [&](const CoreOfLane& at) {
        return text::coreName(program.at(at.lane).core, at.core);
      };
      std::string owing, event = "none: it was ready";
      for (const int32_t each : next.ranks)
        owing += fmt::format("{}rank {}", owing.empty() ? "" : ", ", each);
      for (const CoreOfLane& at : next.cores) owing += (owing.empty() ? "" : ", ") + coreName(at);
      if (next.event) event = fmt::format("{}[{}]", program.at(next.event).name, next.index);
      table.rows.push_back({source.rankName(rank), coreName(next.at),
                            fmt::format("{}[{},{}]", familyName(program, next.family), next.slot, next.tile),
                            event, next.have, next.need, owing});
    }
  return table;
}

ReportTable waitTable(const ReportSource& source, const Run& run) {
  const TaskProgram& program = source.program.tables();
  struct Sum {
    int64_t waits = 0, time = 0, longest = 0;
  };
  std::map<std::tuple<uint32_t, uint32_t, size_t>, Sum> sums;  // event, family, rank
  for (const RunSpan& each : run.spans) {
    if (!isWait(each.span->kind) || each.span->worker < 0) continue;
    Sum& sum = sums[{each.span->event.value, each.span->family.value, run.tracks[each.track].rank}];
    ++sum.waits;
    sum.time += spanDuration(*each.span);
    sum.longest = std::max(sum.longest, spanDuration(*each.span));
  }
  ReportTable table{"waits",
                    "Waits",
                    "Time in which a worker had no task that was ready, by the event that came last.",
                    {{"event", false},
                     {"before family", false},
                     {"rank", false},
                     {"cause", false},
                     {"waits"},
                     {"ms"},
                     {"longest \u00b5s"}},
                    {}};
  for (const auto& [key, sum] : sums) {
    const auto& [id, family, rank] = key;
    const EventId event{id};
    table.rows.push_back({event ? text::nameInEntry(program, program.at(event)) : "?",
                          familyName(program, FamilyId{family}), source.rankName(rank),
                          causeOfWait(program, event), sum.waits, milli(sum.time), micro(sum.longest)});
  }
  std::ranges::stable_sort(table.rows, std::greater(),
                           [](const auto& row) { return row[5].template get<double>(); });
  return table;
}

ReportTable workerTable(const ReportSource& source, const Run& run) {
  ReportTable table{"workers",
                    "Workers",
                    "How each worker spent its time.",
                    {{"worker", false},
                     {"tasks"},
                     {"busy ms"},
                     {"busy %"},
                     {"arrival ms"},
                     {"producer ms"},
                     {"start ms"},
                     {"end ms"},
                     {"ns per task"}},
                    {}};
  for (const RunTrack& track : run.tracks) {
    if (track.worker < 0) continue;
    const WorkerTime& time = track.time;
    table.rows.push_back(
        {fmt::format("{}, worker {}", source.rankName(track.rank), track.worker), time.tasks,
         milli(time.busy), percent(time.busy, time.total()), milli(time.arrival), milli(time.producer),
         milli(time.start), milli(time.end),
         static_cast<double>(time.overhead) / static_cast<double>(std::max<int64_t>(1, time.tasks))});
  }
  return table;
}

}  // namespace

std::vector<ReportTable> runTables(const ReportSource& source, const Run& run) {
  const TaskProgram& program = source.program.tables();
  std::vector<ReportTable> tables = {nextTable(source),         overlapTable(source, run),
                                     familyTable(program, run), criticalTable(program, run),
                                     workerTable(source, run),  waitTable(source, run),
                                     slotTable(source, run)};
  std::erase_if(tables, [](const ReportTable& table) { return table.rows.empty(); });
  return tables;
}

}  // namespace sluice::tools

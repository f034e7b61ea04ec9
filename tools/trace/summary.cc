#include "tools/trace/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/trace/chrome_trace.h"
#include "runtime/trace/task_work.h"

namespace sluice::tools {
namespace {

constexpr size_t kMaxWaits = 8;

struct FamilyTime {
  int64_t tasks = 0;
  int64_t time = 0;
  TaskWork work;
};

std::string qualified(const TaskProgram& program, EntryId entry, const std::string& name) {
  return program.at(entry).name + "/" + name;
}

double perSecond(double amount, int64_t nanoseconds) {
  return nanoseconds > 0 ? amount / static_cast<double>(nanoseconds) : 0;  // G per second
}

std::string familyTable(const TaskProgram& program, const std::vector<Trace>& ranks) {
  std::map<uint32_t, FamilyTime> families;
  int64_t all = 0;
  for (const Trace& trace : ranks) {
    for (const TraceSpan& span : trace.spans) {
      if (span.kind != SpanKind::kTask) continue;
      FamilyTime& family = families[span.family.value];
      const TaskWork work = workOf(program, span.family, span.tile, span.rows);
      ++family.tasks;
      family.time += span.end - span.begin;
      family.work.flops += work.flops;
      family.work.bytes += work.bytes;
      all += span.end - span.begin;
    }
  }
  std::string text = fmt::format("{:<32}{:>9}{:>11}{:>8}{:>11}{:>10}{:>9}\n", "family", "tasks", "ms", "%",
                                 "mean us", "GFLOP/s", "GB/s");
  for (const auto& [id, family] : families) {
    const Family& of = program.families[id];
    text += fmt::format(
        "{:<32}{:>9}{:>11.3f}{:>8.1f}{:>11.3f}{:>10.1f}{:>9.2f}\n", qualified(program, of.entry, of.name),
        family.tasks, static_cast<double>(family.time) * 1e-6,
        100 * static_cast<double>(family.time) / static_cast<double>(std::max<int64_t>(1, all)),
        static_cast<double>(family.time) * 1e-3 / static_cast<double>(family.tasks),
        perSecond(family.work.flops, family.time), perSecond(family.work.bytes, family.time));
  }
  return text;
}

std::string workerTable(const TaskProgram& program, const std::vector<Trace>& ranks) {
  std::string text =
      fmt::format("{:<16}{:>9}{:>10}{:>8}{:>12}{:>12}{:>10}{:>10}{:>12}\n", "rank, worker", "tasks",
                  "busy ms", "%", "arrival ms", "producer ms", "start ms", "end ms", "ns per task");
  const auto milli = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-6; };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    int32_t workers = 0;
    for (const TraceSpan& span : ranks[rank].spans) workers = std::max(workers, span.worker + 1);
    for (int32_t worker = 0; worker < workers; ++worker) {
      const WorkerTime time = timeOfWorker(program, ranks[rank], worker);
      text += fmt::format(
          "{:<16}{:>9}{:>10.3f}{:>8.1f}{:>12.3f}{:>12.3f}{:>10.3f}{:>10.3f}{:>12.0f}\n",
          fmt::format("{}, {}", rank, worker), time.tasks, milli(time.busy),
          100 * milli(time.busy) / std::max(1e-6, milli(time.total())), milli(time.arrival),
          milli(time.producer), milli(time.start), milli(time.end),
          static_cast<double>(time.overhead) / static_cast<double>(std::max<int64_t>(1, time.tasks)));
    }
  }
  return text;
}

std::string waitTable(const TaskProgram& program, const std::vector<Trace>& ranks) {
  std::map<std::pair<uint32_t, uint32_t>, std::pair<int64_t, int64_t>> sums;  // time, number
  for (const Trace& trace : ranks) {
    for (const TraceSpan& span : trace.spans) {
      if (span.kind != SpanKind::kWait) continue;
      auto& [time, number] = sums[{span.event.value, span.family.value}];
      time += span.end - span.begin;
      ++number;
    }
  }
  if (sums.empty()) return {};
  std::vector<std::pair<std::pair<uint32_t, uint32_t>, std::pair<int64_t, int64_t>>> longest(sums.begin(),
                                                                                             sums.end());
  std::stable_sort(longest.begin(), longest.end(),
                   [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  if (longest.size() > kMaxWaits) longest.resize(kMaxWaits);
  std::string text =
      fmt::format("{:<32}{:<32}{:>9}{:>11}\n", "waited for event", "before family", "waits", "ms");
  for (const auto& [what, sum] : longest) {
    const EventId event{what.first};
    const Family& family = program.families[what.second];
    text += fmt::format("{:<32}{:<32}{:>9}{:>11.3f}\n", event ? program.at(event).name : "?",
                        qualified(program, family.entry, family.name), sum.second,
                        static_cast<double>(sum.first) * 1e-6);
  }
  return text;
}

}  // namespace

WorkerTime timeOfWorker(const TaskProgram& program, const Trace& trace, int32_t worker) {
  WorkerTime time;
  const TraceSpan* last = nullptr;
  for (const TraceSpan& span : trace.spans) {
    if (span.worker != worker) continue;
    const int64_t length = span.end - span.begin;
    // the time between two runs belongs to neither
    if (last && span.kind != SpanKind::kStart) time.overhead += span.begin - last->end;
    last = &span;
    if (span.kind == SpanKind::kTask) {
      time.busy += length;
      ++time.tasks;
    } else if (span.kind == SpanKind::kWait) {
      const bool isArrival = span.event && program.at(span.event).remote;
      (isArrival ? time.arrival : time.producer) += length;
    } else {
      (span.kind == SpanKind::kStart ? time.start : time.end) += length;
    }
  }
  return time;
}

std::string traceSummary(const TaskProgram& program, const std::vector<Trace>& ranks) {
  std::string text = familyTable(program, ranks) + "\n" + workerTable(program, ranks);
  if (const std::string waits = waitTable(program, ranks); !waits.empty()) text += "\n" + waits;
  int64_t dropped = 0;
  for (const Trace& trace : ranks) dropped += trace.dropped;
  text += fmt::format("\nspans dropped: {}\n", dropped);
  return text;
}

}  // namespace sluice::tools

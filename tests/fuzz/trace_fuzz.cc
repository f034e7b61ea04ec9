// What is written of a trace, any spans of any times, of a program whose names are any bytes; what is read of
// it again, damaged or not; and a report of that.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/trace/chrome_trace.h"
#include "tests/fuzz/fuzz.h"
#include "tests/testing/moe_program.h"
#include "tools/report/report.h"
#include "tools/trace/read_trace.h"

namespace sluice {
namespace {

constexpr int kWorkers = 3;
constexpr size_t kMaxSpans = 200;

// Times are those of one machine, where no clock runs backwards and all spans together take less than a
// century.
constexpr uint64_t kLatest = uint64_t{1} << 54;

TraceSpan makeSpan(const TaskProgram& program, fuzz::Choices& choices) {
  TraceSpan span;
  span.kind = static_cast<SpanKind>(choices.below(8));
  span.begin = static_cast<int64_t>(choices.number(8) % kLatest);
  span.end = span.begin + static_cast<int64_t>(choices.number(5));
  span.entry = EntryId{choices.below(static_cast<uint32_t>(program.entries.size()))};
  const bool ofRank = span.kind == SpanKind::kStuck ? choices.below(2) == 1 : span.kind >= SpanKind::kRun;
  if (!ofRank) span.worker = static_cast<int32_t>(choices.below(kWorkers));
  if (ofRank || span.kind == SpanKind::kStart || span.kind == SpanKind::kEnd) return span;
  span.family = FamilyId{choices.below(static_cast<uint32_t>(program.families.size()))};
  span.lane = LaneId{choices.below(static_cast<uint32_t>(program.lanes.size()))};
  span.core = static_cast<int32_t>(choices.below(static_cast<uint32_t>(program.cores)));
  span.slot = static_cast<int64_t>(choices.number(2));
  span.tile = static_cast<int32_t>(choices.number(2));
  span.rows = static_cast<int32_t>(choices.number(2));
  span.event = EventId{choices.below(static_cast<uint32_t>(program.events.size()))};
  span.index = static_cast<int64_t>(choices.number(2));
  return span;
}

CoreOfLane findCoreOfLane(const TaskProgram& program, fuzz::Choices& choices) {
  return {LaneId{choices.below(static_cast<uint32_t>(program.lanes.size()))},
          static_cast<int32_t>(choices.below(4))};
}

FailedRun failureOf(const TaskProgram& program, fuzz::Choices& choices) {
  FailedRun failed;
  failed.entry = EntryId{choices.below(static_cast<uint32_t>(program.entries.size()))};
  failed.step = static_cast<int64_t>(choices.below(3));
  failed.message = "rank 0: waited";
  for (uint32_t n = choices.below(6); n > 0; --n) {
    NextTask next;
    next.at = findCoreOfLane(program, choices);
    next.family = FamilyId{choices.below(static_cast<uint32_t>(program.families.size()))};
    next.slot = static_cast<int64_t>(choices.number(1));
    if (choices.below(2) == 1)
      next.event = EventId{choices.below(static_cast<uint32_t>(program.events.size()))};
    next.have = choices.number(2);
    next.need = choices.number(2);
    for (uint32_t more = choices.below(4); more > 0; --more)
      next.ranks.push_back(static_cast<int32_t>(choices.below(3)));
    for (uint32_t more = choices.below(4); more > 0; --more)
      next.cores.push_back(findCoreOfLane(program, choices));
    failed.next.push_back(next);
  }
  return failed;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const TaskProgram base = buildMoeProgram({.ranks = 2});
  fuzz::Choices choices(data, size);
  std::vector<Trace> ranks(2);
  for (size_t i = choices.below(kMaxSpans); i > 0 && !choices.empty(); --i)
    ranks[choices.below(2)].spans.push_back(makeSpan(base, choices));
  ranks[0].dropped = static_cast<int64_t>(choices.number(2));
  for (Trace& trace : ranks)
    if (choices.below(2) == 1) trace.failed = failureOf(base, choices);
  const uint32_t damage = choices.below(4);
  fuzz::Choices places = choices;
  for (Trace& trace : ranks) trace.routings.resize(choices.below(3));
  TaskProgram program = base;
  if (!choices.empty()) program.name = program.families[0].name = program.entries[0].name = choices.rest();
  std::string text = chromeTrace(program, ranks);
  fuzz::require(nlohmann::json::accept(text), "a trace is written as JSON");
  for (uint32_t edits = damage; edits > 0; --edits)
    text[places.number(4) % text.size()] = static_cast<char>(places.number(1));
  const auto read = tools::parseTrace(text);
  if (!read) {
    fuzz::require(!read.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  for (const tools::TracedProgram& each : read->programs) {
    const tools::ReportSource source{"trace", each.program, each.firstRank, each.ranks};
    fuzz::require(!tools::reportText({source}).empty(), "a report has text");
    if (const auto hang = tools::findHang(source))
      for (const tools::HangEdge& edge : hang->edges)
        fuzz::require(!edge.from.empty() && !edge.to.empty(), "a wait has two ends");
  }
  return 0;
}

// The sums of a trace, and its form, for traces written by hand.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/trace/chrome_trace.h"
#include "runtime/trace/task_work.h"
#include "tests/testing/moe_program.h"
#include "tools/trace/steps.h"

namespace sluice::tools {
namespace {

FamilyId familyNamed(const TaskProgram& program, const std::string& name) {
  for (uint32_t f = 0; f < program.families.size(); ++f)
    if (program.families[f].name == name) return FamilyId{f};
  FAIL("no family " << name);
  return {};
}

LaneId laneOf(const TaskProgram& program, FamilyId family) {
  for (uint32_t lane = 0; lane < program.lanes.size(); ++lane)
    for (const auto& seat : program.lanes[lane].seats)
      for (const TaskRecord& record : seat)
        if (record.family == family) return LaneId{lane};
  return {};
}

TraceSpan makeSpan(SpanKind kind, int64_t begin, int64_t end) {
  TraceSpan span;
  span.kind = kind;
  span.begin = begin;
  span.end = end;
  span.worker = 0;
  span.entry = EntryId{0};
  return span;
}

// One worker: start 10 ns, a wait of 100 for rows, a task of 1000, 30 of overhead, one of 500, the end.
Trace handMade(const TaskProgram& program) {
  const FamilyId family = familyNamed(program, "up_proj");
  const LaneId lane = laneOf(program, family);
  Trace trace;
  TraceSpan wait = makeSpan(SpanKind::kWait, 5010, 5110), task = makeSpan(SpanKind::kTask, 5110, 6110);
  wait.family = task.family = family;
  wait.lane = task.lane = lane;
  wait.event = program.at(family).waits[0];
  wait.index = 3;
  task.rows = 16;
  TraceSpan next = task;
  next.begin = 6140;
  next.end = 6640;
  next.tile = 1;
  trace.spans = {makeSpan(SpanKind::kStart, 5000, 5010), wait, task, next,
                 makeSpan(SpanKind::kEnd, 6640, 6700)};
  trace.dropped = 2;
  return trace;
}

TEST_CASE("the time of a worker is told apart by cause and adds up") {
  const TaskProgram program = buildMoeProgram({.ranks = 2});
  const WorkerTime time = timeOfWorker(program, handMade(program), 0);
  CHECK(time.tasks == 2);
  CHECK(time.busy == 1500);
  CHECK(time.overhead == 30);
  CHECK(time.arrival == 100);
  CHECK(time.producer == 0);
  CHECK(time.start == 10);
  CHECK(time.end == 60);
  CHECK(time.total() == 1700);
}

TEST_CASE("spans are complete events in microseconds from the first, on named tracks") {
  const TaskProgram program = buildMoeProgram({.ranks = 2});
  const auto json = nlohmann::json::parse(chromeTrace(program, {handMade(program), {}}));
  CHECK(json["otherData"]["dropped_spans"] == 2);
  std::vector<nlohmann::json> spans, names;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
    if (event["name"] == "thread_name") names.push_back(event);
  }
  REQUIRE(spans.size() == 5);
  CHECK(spans[1]["name"] == "wait rows_arrived");
  CHECK(spans[1]["args"]["cause"] == "arrival");
  CHECK(spans[1]["args"]["index"] == 3);
  CHECK(spans[1]["ts"] == 0.01);
  CHECK(spans[1]["dur"] == 0.1);
  CHECK(spans[2]["ts"] == 0.11);
  CHECK(spans[2]["dur"] == 1.0);
  CHECK(spans[2]["tid"] == spans[1]["tid"]);
  CHECK(spans[0]["tid"] == spans[4]["tid"]);
  CHECK(spans[0]["tid"] != spans[1]["tid"]);
  REQUIRE(names.size() == 2);
  CHECK(names[1]["args"]["name"] == "core 0 forward/up_proj");
}

TEST_CASE("names of any bytes keep the trace legal") {
  TaskProgram program = buildMoeProgram({.ranks = 2});
  const Trace trace = handMade(program);
  program.families[trace.spans[2].family.value].name = "a\"b\\\n\xff";
  for (const std::string name : {"\x01\t\x7f", "gr\u00fc\u00df \u20ac \U0001F600", "\"\\/", ""}) {
    program.name = name;
    CHECK(nlohmann::json::parse(chromeTrace(program, {trace}))["otherData"]["program"] == name);
  }
  // cut short, too long a form, a surrogate, beyond the last character
  for (const std::string name :
       {"\xe2\x82", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) {
    program.name = name;
    std::string replaced;
    for (size_t i = 0; i < name.size(); ++i) replaced += "\uFFFD";
    CHECK(nlohmann::json::parse(chromeTrace(program, {trace}))["otherData"]["program"] == replaced);
  }
}

TEST_CASE("work is counted for the tile of the task") {
  // hidden 32, 2 x intermediate 48 in tiles of 20: the last has 8 columns
  const TaskProgram program = buildMoeProgram({.tileN = 20});
  const FamilyId up = familyNamed(program, "up_proj");
  REQUIRE(program.at(up).tiles == 3);
  CHECK(countWork(program, up, 0, 16).flops == 2 * 16 * 32 * 20);
  CHECK(countWork(program, up, 2, 16).flops == 2 * 16 * 32 * 8);
  CHECK(countWork(program, up, 2, 16).bytes == 2 * (16 * 32 + 32 * 8 + 16 * 8));
  // a gradient of an expert without rows is written all the same
  const FamilyId grad = familyNamed(program, "down_weight_grad");
  CHECK(countWork(program, grad, 0, 0).flops == 0);
  CHECK(countWork(program, grad, 0, 0).bytes > 0);
  for (uint32_t f = 0; f < program.families.size(); ++f)
    CHECK(countWork(program, FamilyId{f}, 0, 16).bytes > 0);
}

}  // namespace
}  // namespace sluice::tools

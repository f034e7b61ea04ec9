// Trace files of single ranks, put together.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/base/scratch_folder.h"
#include "runtime/trace/chrome_trace.h"
#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/moe_program.h"
#include "tools/cli/files.h"
#include "tools/simulate/steps.h"
#include "tools/trace/read_trace.h"
#include "tools/trace/steps.h"

namespace sluice::tools {
namespace {

using Catch::Matchers::Contains;

constexpr int kFileRanks = 2;
constexpr int64_t kMuch = 5'000'000'000;

// Files in a folder of their own.
class Files {
 public:
  Files() : folder_(ScratchFolder::create("trace-files-test")) { REQUIRE(folder_); }
  std::string path(const std::string& name) const { return folder_->path() + "/" + name; }
  std::string pattern() const { return path("t-{rank}.json"); }
  void write(int file, const std::string& text) const {
    REQUIRE(writeText(path("t-" + std::to_string(file) + ".json"), text));
  }
  // The trace of one rank, as number `file`.
  void write(int file, const TaskProgram& program, int rank, const Trace& trace, const char* clock) const {
    write(file, chromeTrace({{&program, rank, {trace}}}, clock));
  }
  std::vector<TracedProgram> read() const {
    auto programs = readTrace(pattern());
    INFO((programs ? "" : programs.error().message));
    REQUIRE(programs);
    return std::move(*programs);
  }
  std::string refusal() const {
    const auto programs = readTrace(pattern());
    REQUIRE_FALSE(programs);
    return programs.error().message;
  }

 private:
  Expected<ScratchFolder> folder_;
};

Plan tracedPlan() {
  return planOf(buildMoeProgram({.ranks = kFileRanks, .experts = 4, .topK = 2, .maxTokens = 64}));
}

// Forward and backward of all ranks, with an exchange before each that both leave at the same moment.
std::vector<Trace> recordedByFile(const Plan& plan) {
  Rates rates = freeRates();
  rates.task = 1e-6;
  rates.link = {1e9, 5e-6};
  std::vector<SimResult> results;
  for (const EntryId entry : {EntryId{0}, EntryId{1}})
    results.push_back(simulate(plan, entry, raggedRouting(kFileRanks), rates, {1, true}));
  std::vector<Trace> ranks = collectTraces(results);
  for (Trace& trace : ranks) {
    std::vector<TraceSpan> exchanges;
    for (const TraceSpan& span : trace.spans)
      if (span.kind == SpanKind::kRun) {
        exchanges.push_back(span);
        exchanges.back().kind = SpanKind::kExchange;
        exchanges.back().end = span.begin;
      }
    trace.spans.insert(trace.spans.end(), exchanges.begin(), exchanges.end());
    sortSpans(trace);
  }
  return ranks;
}

Trace later(Trace trace, int64_t by) {
  for (TraceSpan& span : trace.spans) {
    span.begin += by;
    span.end += by;
  }
  return trace;
}

// Whether the ranks' spans are those of `expected` after one shift of all of them.
void checkSame(const std::vector<Trace>& found, const std::vector<Trace>& expected) {
  REQUIRE(found.size() == expected.size());
  const int64_t shift = found[0].spans[0].begin - expected[0].spans[0].begin;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    REQUIRE(found[rank].spans.size() == expected[rank].spans.size());
    bool same = true;
    for (size_t s = 0; s < found[rank].spans.size(); ++s)
      same = same && found[rank].spans[s].begin - expected[rank].spans[s].begin == shift &&
             found[rank].spans[s].kind == expected[rank].spans[s].kind;
    CHECK(same);
  }
}

TEST_CASE("files of one clock become the trace of all ranks, with who ended each wait") {
  const Plan plan = tracedPlan();
  const std::vector<Trace> ranks = recordedByFile(plan);
  const Files files;
  // the file with the later origin comes first, so that times before its own occur
  files.write(0, plan.program(), 0, later(ranks[0], 700), "clock");
  files.write(1, plan.program(), 1, later(ranks[1], 700), "clock");
  const auto programs = files.read();
  REQUIRE(programs.size() == 1);
  CHECK(programs[0].firstRank == 0);
  checkSame(programs[0].ranks, ranks);
  const auto found = findWaitEnds(plan, programs[0].ranks), expected = findWaitEnds(plan, ranks);
  REQUIRE(found);
  REQUIRE(expected);
  CHECK(found->size() == expected->size());
  CHECK_FALSE(found->empty());
}

TEST_CASE("a rank that began later stays later") {
  const Plan plan = tracedPlan();
  std::vector<Trace> ranks = recordedByFile(plan);
  ranks[1] = later(ranks[1], 12'345);
  const Files files;
  for (int rank = 0; rank < kFileRanks; ++rank)
    files.write(rank, plan.program(), rank, ranks[size_t(rank)], "clock");
  checkSame(files.read()[0].ranks, ranks);
}

TEST_CASE("files of other clocks meet where the ranks left an exchange") {
  const Plan plan = tracedPlan();
  const std::vector<Trace> ranks = recordedByFile(plan);
  for (const char* clock : {"other", ""}) {
    const Files files;
    files.write(0, plan.program(), 0, ranks[0], clock[0] ? "clock" : "");
    // its first exchange ended late on this clock, which does not matter: the last one counts
    Trace shifted = later(ranks[1], kMuch);
    shifted.spans[0].end += 100;
    files.write(1, plan.program(), 1, shifted, clock);
    const auto found = files.read()[0].ranks;
    const auto exchanges = [&](size_t rank) {
      std::vector<int64_t> ends;
      for (const TraceSpan& span : found[rank].spans)
        if (span.kind == SpanKind::kExchange) ends.push_back(span.end);
      return ends;
    };
    REQUIRE(exchanges(0).size() == 2);
    CHECK(exchanges(0)[1] == exchanges(1)[1]);
  }
}

TEST_CASE("files of other clocks without a common exchange end together") {
  const Plan plan = tracedPlan();
  std::vector<Trace> ranks = recordedByFile(plan);
  for (Trace& trace : ranks)
    std::erase_if(trace.spans, [](const TraceSpan& span) { return span.kind == SpanKind::kExchange; });
  const Files files;
  files.write(0, plan.program(), 0, ranks[0], "clock");
  files.write(1, plan.program(), 1, later(ranks[1], kMuch), "other");
  const auto found = files.read()[0].ranks;
  const auto end = [&](size_t rank) { return std::ranges::max(found[rank].spans, {}, &TraceSpan::end).end; };
  CHECK(end(0) == end(1));
}

TEST_CASE("a rank without a file has an empty trace, and several programs keep theirs apart") {
  const Plan plan = tracedPlan();
  const std::vector<Trace> ranks = recordedByFile(plan);
  const Plan other =
      planOf(buildMoeProgram({.ranks = kFileRanks, .experts = 4, .topK = 2, .hidden = 48, .maxTokens = 64}));
  const Files files;
  // twice the same program, and another one
  files.write(1, chromeTrace({{&plan.program(), 1, {ranks[1]}},
                              {&other.program(), 1, {Trace{}}},
                              {&plan.program(), 1, {ranks[1]}}},
                             "clock"));
  auto programs = files.read();
  REQUIRE(programs.size() == 3);
  for (const TracedProgram& each : programs) {
    REQUIRE(each.ranks.size() == kFileRanks);
    CHECK(each.ranks[0].spans.empty());
  }
  CHECK(programs[2].ranks[1].spans.size() == ranks[1].spans.size());
  files.write(0, plan.program(), 0, ranks[0], "clock");
  programs = files.read();
  REQUIRE(programs.size() == 3);
  CHECK_FALSE(programs[0].ranks[0].spans.empty());
  CHECK_FALSE(programs[0].ranks[1].spans.empty());
}

TEST_CASE("two groups of ranks with the same program are two programs, side by side or in turn") {
  const Plan plan = tracedPlan();
  const std::vector<Trace> ranks = recordedByFile(plan);
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 0, 1}, {0, 0, 1, 1}}) {
    const Files files;
    for (int file = 0; file < 4; ++file)
      files.write(file, plan.program(), order[size_t(file)], ranks[size_t(order[size_t(file)])], "clock");
    const auto programs = files.read();
    REQUIRE(programs.size() == 2);
    for (const TracedProgram& each : programs) checkSame(each.ranks, ranks);
  }
}

TEST_CASE("files that are not those of one job are refused with their names") {
  const Plan plan = tracedPlan();
  const std::vector<Trace> ranks = recordedByFile(plan);
  const Files files;
  CHECK_THAT(files.refusal(),
             Contains("t-{rank}.json: found no such file, expected") && Contains("t-0.json"));
  files.write(0, plan.program(), 0, ranks[0], "clock");
  files.write(1, plan.program(), 1, later(ranks[1], int64_t{1} << 61), "clock");
  CHECK_THAT(files.refusal(), Contains("t-1.json: found times") && Contains("expected those of one job"));
  files.write(1, "[]");
  CHECK_THAT(files.refusal(), Contains("t-1.json: found no JSON object"));
}

TEST_CASE("a run that failed is read back as it was") {
  const Plan plan = tracedPlan();
  std::vector<Trace> ranks = recordedByFile(plan);
  const FamilyId family{1};
  const LaneId lane = plan.at(family).lane;
  const int32_t core = plan.program().at(lane).firstCore;
  FailedRun& failed = ranks[1].failed;
  failed = {EntryId{1}, 2, "rank 1: \"waited\"\n30 s", {}};
  failed.next.push_back({{lane, core}, family, 3, 0, EventId{0}, 7, 12, 18, {0, 1}, {{lane, core}}});
  failed.next.push_back({{lane, core}, family, 4, 0, {}, 0, 0, 0, {}, {}});
  TraceSpan stuck = *std::ranges::find(ranks[1].spans, SpanKind::kWait, &TraceSpan::kind);
  stuck.kind = SpanKind::kStuck;
  TraceSpan bind = *std::ranges::find(ranks[1].spans, SpanKind::kRun, &TraceSpan::kind);
  bind.kind = SpanKind::kStuck;
  bind.index = 0;
  ranks[1].spans.insert(ranks[1].spans.end(), {stuck, bind});
  sortSpans(ranks[1]);
  const auto file = parseTrace(chromeTrace(plan.program(), ranks));
  INFO((file ? "" : file.error().message));
  REQUIRE(file);
  const std::vector<Trace>& back = file->programs[0].ranks;
  CHECK(back[0].failed.message.empty());
  const FailedRun& found = back[1].failed;
  CHECK(found.entry == failed.entry);
  CHECK(found.step == 2);
  CHECK(found.message == failed.message);
  REQUIRE(found.next.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const NextTask &here = found.next[i], &wrote = failed.next[i];
    CHECK(here.at == wrote.at);
    CHECK(here.family == wrote.family);
    CHECK(here.slot == wrote.slot);
    CHECK(here.event == wrote.event);
    CHECK(here.index == wrote.index);
    CHECK(here.have == wrote.have);
    CHECK(here.need == wrote.need);
    CHECK(here.ranks == wrote.ranks);
    CHECK(here.cores == wrote.cores);
  }
  REQUIRE(back[1].spans.size() == ranks[1].spans.size());
  for (size_t s = 0; s < back[1].spans.size(); ++s) {
    CHECK(back[1].spans[s].kind == ranks[1].spans[s].kind);
    CHECK(back[1].spans[s].event == ranks[1].spans[s].event);
    if (back[1].spans[s].worker < 0) CHECK(back[1].spans[s].slot == ranks[1].spans[s].slot);
  }
}

TEST_CASE("what a failed run cannot have is refused") {
  const Plan plan = tracedPlan();
  std::vector<Trace> ranks = recordedByFile(plan);
  const FamilyId family{1};
  const LaneId lane = plan.at(family).lane;
  NextTask next{{lane, plan.program().at(lane).firstCore}, family, 3, 0, EventId{0}, 7, 12, 18, {0}, {}};
  const auto refusal = [&](const auto& damage, int64_t step = 1, const char* message = "waited") {
    NextTask damaged = next;
    damage(damaged);
    ranks[0].failed = {EntryId{0}, step, message, {damaged}};
    const auto file = parseTrace(chromeTrace(plan.program(), ranks));
    REQUIRE_FALSE(file);
    return file.error().message;
  };
  CHECK_THAT(refusal([](NextTask& task) { task.slot = -1; }),
             Contains("process 0 of 'sluice': slot: found -1"));
  CHECK_THAT(refusal([](NextTask& task) { task.tile = 1 << 20; }), Contains("tile: found 1048576"));
  CHECK_THAT(refusal([](NextTask& task) { task.at.core = 999; }),
             Contains("core: found 999, expected a number of"));
  CHECK_THAT(refusal([](NextTask& task) { task.ranks = {2}; }),
             Contains("ranks: found 2, expected a number of 0 to 1"));
  CHECK_THAT(refusal([](NextTask& task) { task.cores = {{LaneId{999}, 0}}; }),
             Contains("cores: found [999,0]"));
  CHECK_THAT(refusal([](NextTask& task) { task.cores = {{LaneId{0}, 999}}; }), Contains("core: found 999"));
  CHECK_THAT(refusal([](NextTask&) {}, -1), Contains("step: found -1"));
}

}  // namespace
}  // namespace sluice::tools

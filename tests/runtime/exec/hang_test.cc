// What a recording says of a run that failed: the waits that never ended, and who owed what they waited for.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

#include "runtime/base/scratch_folder.h"
#include "runtime/exec/trace_span.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

struct FailedRanks {
  std::vector<Status> results;
  std::vector<Trace> traces;
};

// Records forward, for which rank `faulty` loses the signals that `keep` refuses.
FailedRanks traceLosing(const Program& program, LayerData& data, const ContextOptions& options, int faulty,
                        FaultyTransport::Filter keep) {
  std::vector<std::unique_ptr<FaultyTransport>> wrapped(static_cast<size_t>(program.ranks()));
  FailedRanks ranks{{}, std::vector<Trace>(wrapped.size())};
  ranks.results = runRanks(
      program, options,
      [&](int rank, Context& context) -> Status {
        if (Status bound = bindAll(data, rank, context); !bound) return bound;
        context.startTrace();
        Status ran = context.run("forward");
        ranks.traces[static_cast<size_t>(rank)] = context.takeTrace();
        return ran;
      },
      [&](int rank, Transport& real) -> Transport& {
        if (rank != faulty) return real;
        auto& wrap = wrapped[static_cast<size_t>(rank)];
        wrap = std::make_unique<FaultyTransport>(real, keep);
        return *wrap;
      });
  return ranks;
}

std::vector<TraceSpan> ofKind(const Trace& trace, SpanKind kind) {
  std::vector<TraceSpan> spans;
  for (const TraceSpan& span : trace.spans)
    if (span.kind == kind) spans.push_back(span);
  return spans;
}

template <class Id, class T>
Id find(const std::vector<T>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &T::name);
  REQUIRE(found != all.end());
  return Id{static_cast<uint32_t>(found - all.begin())};
}

constexpr double kLimit = 0.3;

TEST_CASE("of a lost message every rank records what it waited for, and from whom") {
  const Program program =
      programOf(buildMoeProgram({.ranks = 3, .experts = 3, .topK = 3, .cores = 2, .slotRows = 32}));
  const TaskProgram& tables = program.tables();
  LayerData data = makeLayerData(tables, {.tokens = {.counts = {5, 6, 7}}});
  const auto arrived = find<EventId>(tables.events, "rows_arrived");
  const auto done = find<EventId>(tables.events, "up_proj_done");
  for (const ContextOptions& options : {ContextOptions{.threads = 1, .timeoutSeconds = kLimit},
                                        {.threads = 2, .timeoutSeconds = kLimit},
                                        {.executor = ExecutorKind::kSerial, .timeoutSeconds = kLimit}}) {
    // rank 1 never tells rank 2 that its rows have arrived
    const FailedRanks ranks = traceLosing(
        program, data, options, 1, [](int rank, SymmetricHandle, size_t, uint64_t) { return rank != 2; });
    for (size_t rank = 0; rank < 3; ++rank) {
      const Trace& trace = ranks.traces[rank];
      REQUIRE_FALSE(ranks.results[rank].ok());
      CHECK(trace.failed.message == ranks.results[rank].error().message);
      CHECK(trace.failed.entry == EntryId{0});
      CHECK(trace.failed.step == 1);
      CHECK(trace.dropped == 0);
      // the tables of the run can be made again
      const auto runs = ofKind(trace, SpanKind::kRun);
      REQUIRE(runs.size() == 1);
      CHECK(runs[0].slot == 1);
      REQUIRE(runs[0].index == 0);
      CHECK(trace.routings.size() == 1);
      CHECK(ofKind(trace, SpanKind::kEnd).empty());
    }
    const Trace& waiting = ranks.traces[2];
    const auto stuck = ofKind(waiting, SpanKind::kStuck);
    REQUIRE(static_cast<int>(stuck.size()) ==
            (options.executor == ExecutorKind::kSerial ? 1 : options.threads));
    CHECK(std::ranges::all_of(stuck, [](const TraceSpan& span) { return span.worker >= 0; }));
    CHECK(std::ranges::any_of(stuck, [&](const TraceSpan& span) {
      return span.event == arrived && span.end - span.begin >= static_cast<int64_t>(kLimit * 1e9);
    }));
    // the first wait of all
    const auto missing = std::ranges::find(waiting.failed.next, arrived, &NextTask::event);
    REQUIRE(missing != waiting.failed.next.end());
    CHECK(tables.at(missing->family).name == "up_proj");
    CHECK(missing->index == 0);
    CHECK(missing->have == 12);
    CHECK(missing->need == 18);
    CHECK(missing->ranks == std::vector<int32_t>{1});
    CHECK(missing->cores.empty());
    // and what follows from it: the core whose task has not run
    for (const NextTask& next : waiting.failed.next) {
      if (next.event != done) continue;
      CHECK(next.have < next.need);
      CHECK(next.ranks.empty());
      REQUIRE_FALSE(next.cores.empty());
      for (const CoreOfLane& core : next.cores)
        CHECK(std::ranges::find(waiting.failed.next, core, &NextTask::at) != waiting.failed.next.end());
    }
    const bool follows =
        std::ranges::find(waiting.failed.next, done, &NextTask::event) != waiting.failed.next.end();
    CHECK(follows == (options.executor == ExecutorKind::kParallel));
  }
}

std::string contentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int countOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("each rank writes the step that failed, and no earlier one, to its file, which its error names") {
  const Expected<ScratchFolder> folder = ScratchFolder::create("hang-test");
  REQUIRE(folder);
  const Program program = programOf(buildMoeProgram({.ranks = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20, 30}}});
  const std::string pattern = folder->path() + "/hang-{rank}.json";
  std::atomic<bool> loses{false};
  for (const bool isTraced : {false, true}) {
    std::unique_ptr<FaultyTransport> wrapped;
    std::vector<Trace> traces(2), next(2);
    loses = false;
    const auto results = runRanks(
        program, {.threads = 1, .timeoutSeconds = kLimit, .onHang = pattern},
        [&](int rank, Context& context) -> Status {
          if (Status bound = bindAll(data, rank, context); !bound) return bound;
          if (isTraced) context.startTrace();
          for (int step = 0; step < 3; ++step)
            if (Status ran = context.run("forward"); !ran) return ran;
          if (rank == 1) loses = true;  // its own signals, from its next step on
          Status ran = context.run("forward");
          traces[static_cast<size_t>(rank)] = context.takeTrace();
          next[static_cast<size_t>(rank)] = context.takeTrace();
          return ran;
        },
        [&](int rank, Transport& real) -> Transport& {
          if (rank == 0) return real;
          wrapped = std::make_unique<FaultyTransport>(
              real, [&](int to, SymmetricHandle, size_t, uint64_t) { return to == 1 || !loses; });
          return *wrapped;
        });
    for (size_t rank = 0; rank < 2; ++rank) {
      REQUIRE_FALSE(results[rank].ok());
      const std::string path = folder->path() + "/hang-" + std::to_string(rank) + ".json";
      CHECK_THAT(
          results[rank].error().message,
          Catch::Matchers::EndsWith("; what rank " + std::to_string(rank) + " did until then is in " + path));
      const std::string text = contentOf(path);
      CHECK(countOf(text, "\"failed\":{\"entry\":0,\"step\":4,\"message\":\"rank 0, core") == 1);
      CHECK(countOf(text, "\"cat\":\"step\",\"args\":{\"step\":4,\"routing\"") == 1);
      // a recording of the caller has all of them, in the file, too
      CHECK(ofKind(traces[rank], SpanKind::kRun).size() == (isTraced ? 4 : 0));
      CHECK(traces[rank].failed.message.empty() != isTraced);
      CHECK(next[rank].spans.empty());
      CHECK((countOf(text, "\"step\":3,\"routing\"") == 1) == isTraced);
      REQUIRE(::unlink(path.c_str()) == 0);
    }
  }
}

TEST_CASE("a file that cannot be written, or that ranks would share, is said") {
  const Program program = programOf(buildMoeProgram({.ranks = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20, 30}}});
  const auto failing = [&](const std::string& pattern) {
    const auto results = runRanks(program, {.threads = 1, .timeoutSeconds = kLimit, .onHang = pattern},
                                  [&](int rank, Context& context) -> Status {
                                    Status bound = bindAll(data, rank, context);
                                    return bound && rank == 0 ? context.run("forward") : bound;
                                  });
    REQUIRE_FALSE(results[0].ok());
    return results[0].error().message;
  };
  CHECK_THAT(failing("/nothing/hang-{rank}.json"),
             Catch::Matchers::StartsWith("rank 0: waited 0.3 s for the counts of rank 1") &&
                 Catch::Matchers::Contains("; /nothing/hang-0.json: "));
  CHECK_THAT(failing("/nothing/hang.json"),
             Catch::Matchers::Contains("found no {rank} in '/nothing/hang.json'"));
  REQUIRE(::setenv("SLUICE_ON_HANG", "core", 1) == 0);
  CHECK_THAT(failing(""), Catch::Matchers::Contains(
                              "variable SLUICE_ON_HANG: found 'core', expected trace or trace=FILE"));
  REQUIRE(::setenv("SLUICE_ON_HANG", "trace=/nothing/hang-{rank}.json", 1) == 0);
  CHECK_THAT(failing(""), Catch::Matchers::Contains("; /nothing/hang-0.json: "));
  ::unsetenv("SLUICE_ON_HANG");
}

TEST_CASE("nobody owes a signal that was lost at its own rank") {
  const Program program = programOf(buildMoeProgram({.ranks = 1, .experts = 1, .topK = 1, .cores = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {10}}});
  int signals = 0;
  const FailedRanks ranks =
      traceLosing(program, data, {.threads = 1, .timeoutSeconds = kLimit}, 0,
                  [&](int, SymmetricHandle, size_t, uint64_t) { return ++signals != 3; });
  const auto& next = ranks.traces[0].failed.next;
  const auto lost =
      std::ranges::find(next, find<EventId>(program.tables().events, "up_proj_done"), &NextTask::event);
  REQUIRE(lost != next.end());
  CHECK(lost->have == 2);
  CHECK(lost->need == 3);
  CHECK(lost->ranks.empty());
  CHECK(lost->cores.empty());
}

TEST_CASE("a run that waits for a rank that does not come is recorded without tasks") {
  const Program program = programOf(buildMoeProgram({.ranks = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20, 30}}});
  Trace trace;
  const auto results =
      runRanks(program, {.threads = 1, .timeoutSeconds = kLimit}, [&](int rank, Context& context) -> Status {
        Status bound = bindAll(data, rank, context);
        if (!bound || rank == 1) return bound;
        context.startTrace();
        Status ran = context.run("forward");
        trace = context.takeTrace();
        return ran;
      });
  REQUIRE_FALSE(results[0].ok());
  CHECK(trace.failed.message == results[0].error().message);
  CHECK(trace.failed.step == 1);
  CHECK(trace.failed.next.empty());
  const auto runs = ofKind(trace, SpanKind::kRun), stuck = ofKind(trace, SpanKind::kStuck);
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].index == -1);
  REQUIRE(stuck.size() == 1);
  CHECK(stuck[0].worker == -1);
  CHECK(stuck[0].end - stuck[0].begin >= static_cast<int64_t>(kLimit * 1e9));
}

TEST_CASE("a refused run leaves nothing, and the next one is recorded as always") {
  const Program program = programOf(buildMoeProgram({.ranks = 1}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20}}});
  const auto results = runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    context.startTrace();
    CHECK_FALSE(context.run("forward").ok());  // nothing is bound
    const Trace refused = context.takeTrace();
    CHECK(refused.failed.message.empty());
    CHECK(refused.spans.empty());
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    Status ran = context.run("forward");
    const Trace trace = context.takeTrace();
    CHECK(trace.failed.message.empty());
    CHECK(ofKind(trace, SpanKind::kStuck).empty());
    const auto runs = ofKind(trace, SpanKind::kRun);
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].slot == 2);
    return ran;
  });
  CHECK(results[0].ok());
}

}  // namespace
}  // namespace sluice

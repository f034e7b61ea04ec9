// Devices other than the CPU: what they are given is enough to run a step.
#include "runtime/exec/device.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "runtime/comm/in_process.h"
#include "runtime/exec/lane_cursor.h"
#include "runtime/exec/rank.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

const EntryId kForward{0}, kBackward{1};

TaskProgram tablesFor(int ranks) {
  return buildMoeProgram({.ranks = ranks, .experts = 3 * ranks, .topK = 2, .maxTokens = 50, .cores = 3});
}

// The expert ids of a rank's tokens; the first experts occur more often.
std::vector<int32_t> idsOf(const TaskProgram& program, int rank, int64_t tokens) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<int32_t>((t * t + rank) % program.experts);
    ids.insert(ids.end(), {first, (first + 1) % program.experts});
  }
  return ids;
}

int64_t countTasks(const Step& step) {
  int64_t tasks = 0;
  for (const FamilyId family : step.plan->at(step.entry).families)
    tasks += liveSlots(*step.tables, step.plan->at(family).space) * step.program().at(family).tiles;
  return tasks;
}

// A rank of a simulation: it has its own memory for events, and computes nothing.
struct SimulatedRank {
  std::vector<uint64_t> words;
  EventTable events;
  RoutingTables tables;
  LaneProgress progress;
  std::vector<LaneCursors> cores;
  Step step;

  SimulatedRank(const Plan& plan, int rank, int ranks)
      : words(EventTable::bytesFor(plan, ranks) / sizeof(uint64_t)),
        events(plan, ranks,
               {{}, reinterpret_cast<std::byte*>(words.data()), words.size() * sizeof(uint64_t)}),
        progress(plan.program()) {
    step = {&plan, rank, nullptr, &events, &tables, {}, {}, WorkKind::kAll};
  }
  void start(EntryId entry) {
    step.entry = entry;
    events.setThresholds(*step.plan, entry, tables);
    cores.clear();
    const int count = countCores(step.program());
    for (int core = 0; core < count; ++core) {
      cores.push_back(makeCursors(*step.plan, entry, core, count, progress));
      for (auto& lane : cores.back())
        for (LaneCursor& cursor : lane) cursor.start(step);
    }
  }
};

// Runs one ready task of each core; the signals reach the ranks when all of them have ended.
int64_t runRound(std::vector<std::unique_ptr<SimulatedRank>>& ranks) {
  struct Signal {
    int rank;
    size_t word;
    uint64_t n;
  };
  std::vector<Signal> signals;
  int64_t tasks = 0;
  const auto runOne = [&](const Step& step, LaneCursors& core) {
    for (auto& lane : core)
      for (LaneCursor& cursor : lane) {
        if (cursor.done() || !cursor.ready()) continue;
        forSignals(step, cursor.task(),
                   [&](int rank, size_t word, uint64_t n) { signals.push_back({rank, word, n}); });
        cursor.next(step);
        ++tasks;
        return;
      }
  };
  for (auto& rank : ranks)
    for (LaneCursors& core : rank->cores) runOne(rank->step, core);
  for (const auto& [rank, word, n] : signals) ranks[rank]->words[word / sizeof(uint64_t)] += n;
  return tasks;
}

TEST_CASE("ranks without transport, threads and memory run all tasks of a step") {
  for (const int count : {1, 2, 5}) {
    const Plan plan = Plan::make(*verify(tablesFor(count)));
    const int32_t experts = plan.program().experts;
    std::vector<std::unique_ptr<SimulatedRank>> ranks;
    std::vector<int32_t> counts(static_cast<size_t>(count) * experts);
    for (int rank = 0; rank < count; ++rank) {
      ranks.push_back(std::make_unique<SimulatedRank>(plan, rank, count));
      const int32_t tokens = 50 - 7 * rank;
      const std::vector<int32_t> ids = idsOf(plan.program(), rank, tokens);
      const std::span own = std::span(counts).subspan(static_cast<size_t>(rank) * experts, experts);
      countPairs(plan.routingShape(), ids, tokens, ranks.back()->tables, own);
    }
    for (int rank = 0; rank < count; ++rank)
      buildTables(plan.routingShape(), rank, {counts.data(), static_cast<size_t>(experts)},
                  ranks[rank]->tables);
    for (const EntryId entry : {kForward, kBackward, kForward}) {
      for (auto& rank : ranks) rank->start(entry);
      int64_t tasks = 0;
      while (const int64_t some = runRound(ranks)) tasks += some;
      int64_t expected = 0;
      for (auto& rank : ranks) {
        expected += countTasks(rank->step);
        for (int source = 0; source < count; ++source)
          CHECK(rank->events.arrivedFrom(SpaceKind::kSends, source) ==
                static_cast<uint64_t>(rank->tables.rowsFrom[source]));
        rank->events.zero(plan, entry);
        rank->events.finish(plan, entry, rank->tables);
      }
      CHECK(tasks == expected);
    }
  }
}

// It has no kernels, and its regions have no memory.
class HollowExecutor final : public Executor {
 public:
  HollowExecutor(std::shared_ptr<const Plan> plan, const std::string& refusal)
      : plan_(std::move(plan)), refusal_(refusal), progress_(plan_->program()) {}

  int workers() const override { return 1; }
  size_t scratchBytes() const override { return 12345; }
  Status prepare(std::span<const BoundTensor> bound, Team* /*callers*/) override {
    // no assertion: ranks are threads, and Catch2 counts assertions of one
    if (bound.size() != plan_->program().buffers.size()) return Error{"not every buffer has a binding"};
    return refusal_.empty() ? Status() : Status(Error{refusal_});
  }
  Expected<int64_t> run(const Step& step, const RunOptions& options) override {
    if (options.scratch == nullptr) return Error{"no scratch memory"};
    LaneCursors cursors = makeCursors(*plan_, step.entry, 0, 1, progress_);
    for (auto& lane : cursors)
      for (LaneCursor& cursor : lane) cursor.start(step);
    int64_t tasks = 0;
    while (runSome(step, cursors, tasks) && !step.transport->isAborted()) std::this_thread::yield();
    step.events->zero(*plan_, step.entry);
    return tasks;
  }

 private:
  static bool runSome(const Step& step, LaneCursors& cursors, int64_t& tasks) {
    bool anyLeft = false;
    for (auto& lane : cursors)
      for (LaneCursor& cursor : lane)
        for (; !cursor.done() && (anyLeft = true) && cursor.ready(); cursor.next(step), ++tasks)
          forSignals(step, cursor.task(), [&](int rank, size_t word, uint64_t n) {
            step.transport->signal(rank, step.events->words().handle, word, n);
          });
    return anyLeft;
  }

  const std::shared_ptr<const Plan> plan_;
  const std::string& refusal_;
  LaneProgress progress_;
};

class HollowDevice final : public Device {
 public:
  HollowDevice(Transport& transport, const std::string& refusal) : transport_(transport), refusal_(refusal) {}

  int workers() const override { return 1; }
  Expected<DeviceMemory> reserve(size_t bytes) override {
    return DeviceMemory{reinterpret_cast<std::byte*>(size_t{1} << 40), bytes, nullptr};
  }
  Expected<SymmetricMemory> allocate(size_t bytes) override {
    const auto handle = transport_.allocate(bytes);
    if (!handle) return handle.error();
    return SymmetricMemory{*handle, transport_.local(*handle), bytes};
  }
  Expected<std::unique_ptr<Executor>> load(std::shared_ptr<const Plan> plan, const LoadOptions&) override {
    return std::unique_ptr<Executor>(std::make_unique<HollowExecutor>(std::move(plan), refusal_));
  }

 private:
  Transport& transport_;
  const std::string& refusal_;
};

// The result of each step at a rank: "", or the error.
std::vector<std::string> runSteps(const TaskProgram& program, Transport& transport,
                                  const std::vector<std::string>& refusals) {
  const auto plan = std::make_shared<const Plan>(Plan::make(*verify(program)));
  std::string refusal;
  HollowDevice device(transport, refusal);
  auto meeting = *Meeting::create(transport);
  auto rank = *RankState::create(plan, transport, device, *device.load(plan, {}),
                                 *Identities::create(transport, plan->verified()));
  const auto memory = *WorkMemory().grow(rank->regions().needs, device);
  const int64_t tokens = 20 + transport.rank();
  std::vector<int32_t> ids = idsOf(program, transport.rank(), tokens);
  std::vector<BoundTensor> bound(program.buffers.size());
  for (size_t b = 0; b < bound.size(); ++b)
    bound[b] = {reinterpret_cast<std::byte*>(ids.data()), tokens, 1, false};
  std::vector<std::string> ends;
  for (const std::string& refuse : refusals) {
    refusal = refuse;
    const StepRequest request{ends.size() + 1, 0,        kForward, *rank->savedState(0),
                              memory.get(),    &meeting, &bound};
    const auto step = rank->bindStep(request, 20);
    if (!step) {
      ends.push_back(step.error().message);
      continue;
    }
    const auto tasks = rank->executor().run(**step, {.scratch = memory->scratch.data});
    ends.push_back(!tasks ? tasks.error().message : *tasks != countTasks(**step) ? "not all tasks ran" : "");
    TouchedMemory touched;
    rank->finishStep(request, touched);
  }
  return ends;
}

TEST_CASE(
    "a step runs on a device that computes nothing, and takes place nowhere where one device refuses it") {
  const TaskProgram program = tablesFor(2);
  InProcessGroup group(2);
  std::vector<std::string> ends[2];
  std::thread other([&] { ends[1] = runSteps(program, group.transport(1), {"", "no descriptor left", ""}); });
  ends[0] = runSteps(program, group.transport(0), {"", "", ""});
  other.join();
  const std::vector<std::string> expected = {"", "rank 1: no descriptor left", ""};
  CHECK(ends[0] == expected);
  CHECK(ends[1] == expected);
}

}  // namespace
}  // namespace sluice

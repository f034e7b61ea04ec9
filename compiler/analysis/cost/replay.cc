#include "compiler/analysis/cost/replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>

#include "runtime/cost/task_cost.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr int64_t kMostHeads = 1 << 24;  // lane heads that one replay may examine
constexpr int64_t kNone = -1;

struct Counter {
  double left = 0;
  double doneAt = 0;
  bool remote = false;
};

// All tasks of one slot of a family are alike.
struct SlotRun {
  double seconds = 0;
  double amount = 1;  // each task adds this to its events
  double bytes = 0;   // over the link; 0: they stay at this rank
  std::array<int64_t, 2> waits = {kNone, kNone};
  std::array<int64_t, 2> signals = {kNone, kNone};
};

struct FamilyRun {
  size_t family = 0;  // in the problem
  int64_t tiles = 1;
  int64_t cores = 1;  // the first ones of the pool, which share its tasks
  int64_t tasks = 0;
  std::vector<SlotRun> slots;
};

struct Core {
  size_t pool = 0;
  std::vector<int64_t> next;  // next task of each lane of the pool
  double since = 0;           // the time at which it became idle
  double busy = 0;
  bool isBusy = false;
  size_t run = 0;  // the run of the task that it executes
  size_t slot = 0;
};

// A core has finished, or rows have arrived. Simultaneous ones are handled in the order in which they were
// made.
struct Moment {
  double time = 0;
  int64_t number = 0;
  int64_t core = kNone;  // kNone: rows
  size_t run = 0;
  size_t slot = 0;
  bool operator>(const Moment& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

class Replayer {
 public:
  Replayer(const CostProblem& problem, uint32_t entry, const Rates& rates, const ReplayStep& step)
      : problem_(problem), entry_(entry), rates_(rates), step_(step), pools_(poolsOf(problem)) {}

  std::optional<Replay> run(LaneRule rule) {
    addCounters();
    addRuns();
    addCores(rule);
    for (size_t core = 0; core < cores_.size(); ++core) start(core);
    while (!moments_.empty() && heads_ < kMostHeads) {
      const Moment moment = moments_.top();
      moments_.pop();
      now_ = moment.time;
      pass(moment);
    }
    if (left_ > 0) return std::nullopt;
    return result();
  }

 private:
  const TaskProgram& program() const { return problem_.program; }

  void addCounters() {
    for (const EventArray& event : program().events) {
      firstCounter_.push_back(static_cast<int64_t>(counters_.size()));
      const bool mine = event.entry.value == entry_;
      counters_.resize(
          counters_.size() + static_cast<size_t>(mine ? liveEvents(step_.tables, event.space) : 0),
          Counter{0, 0, event.remote});
    }
  }

  // A counter ends at the sum of what its producers add (docs/SCHEDULE.md, R4).
  void addRuns() {
    replay_.families.resize(program().families.size());
    for (size_t f = 0; f < replay_.families.size(); ++f) {
      const Family& family = program().families[f];
      if (family.entry.value != entry_) continue;
      FamilyRun run{f, tilesOf(family), coresOf(problem_, family), 0, {}};
      const TaskRates rates(rates_, coresOfKind(problem_, family));
      const int64_t slots = liveSlots(step_.tables, problem_.spaceOf(family));
      for (int64_t slot = 0; slot < slots; ++slot) {
        run.slots.push_back(slotRun(family, slot, rates));
        for (int64_t signal : run.slots.back().signals)
          if (signal != kNone)
            counters_[static_cast<size_t>(signal)].left +=
                run.slots.back().amount * static_cast<double>(run.tiles);
      }
      run.tasks = slots * run.tiles;
      left_ += run.tasks;
      replay_.tasks += run.tasks;
      replay_.families[f].tasks = run.tasks;
      runs_.push_back(std::move(run));
    }
  }

  SlotRun slotRun(const Family& family, int64_t slot, const TaskRates& rates) const {
    const SpaceKind space = problem_.spaceOf(family);
    const ReplayView view = viewOf(problem_, step_, space, slot);
    SlotRun run;
    run.seconds = taskCost(program(), family, view.rows, view.reuse, rates).seconds();
    if (isRemote(space)) run.amount = view.rows;
    if (view.leaves) run.bytes = view.rows * family.tiling.n * elementBytes(program(), family);
    const auto find = [&](const std::vector<EventId>& events, std::array<int64_t, 2>& out) {
      for (size_t i = 0; i < std::min<size_t>(events.size(), 2); ++i)
        out[i] = firstCounter_[events[i].value] +
                 eventIndex(step_.tables, space, slot, program().at(events[i]).space);
    };
    find(family.waits, run.waits);
    find(family.signals, run.signals);
    return run;
  }

  void addCores(LaneRule rule) {
    const std::vector<int32_t> priority =
        rankFamilies(program(), std::vector<LaneRule>(program().entries.size(), rule));
    lanes_.resize(pools_.size());
    for (size_t r = 0; r < runs_.size(); ++r)
      lanes_[poolOf(pools_, problem_, program().families[runs_[r].family])].push_back(r);
    for (size_t p = 0; p < pools_.size(); ++p) {
      std::vector<size_t>& lanes = lanes_[p];
      std::sort(lanes.begin(), lanes.end(),
                [&](size_t a, size_t b) { return priority[runs_[a].family] < priority[runs_[b].family]; });
      for (int32_t c = 0; c < pools_[p].cores; ++c) {
        Core core;
        core.pool = p;
        for (size_t lane : lanes) core.next.push_back(c < runs_[lane].cores ? c : runs_[lane].tasks);
        cores_.push_back(std::move(core));
      }
    }
  }

  bool isDone(int64_t counter) const {
    return counter == kNone || counters_[static_cast<size_t>(counter)].left <= 0;
  }

  // The first ready head of the core's lanes, if any.
  void start(size_t c) {
    Core& core = cores_[c];
    const std::vector<size_t>& lanes = lanes_[core.pool];
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const FamilyRun& run = runs_[lanes[lane]];
      if (core.next[lane] >= run.tasks) continue;
      ++heads_;
      const auto slot = static_cast<size_t>(core.next[lane] / run.tiles);
      const SlotRun& task = run.slots[slot];
      if (!isDone(task.waits[0]) || !isDone(task.waits[1])) continue;
      core.next[lane] += run.cores;
      begin(core, task);
      core.run = lanes[lane];
      core.slot = slot;
      moments_.push({now_ + task.seconds, made_++, static_cast<int64_t>(c), core.run, slot});
      ReplayedFamily& family = replay_.families[run.family];
      if (family.lastEnd == 0 || now_ < family.firstStart) family.firstStart = now_;
      family.lastEnd = std::max(family.lastEnd, now_ + task.seconds);
      return;
    }
  }

  void begin(Core& core, const SlotRun& task) {
    double latest = -1;
    bool remote = false;
    for (int64_t wait : task.waits) {
      if (wait == kNone) continue;
      const Counter& counter = counters_[static_cast<size_t>(wait)];
      if (counter.doneAt <= latest) continue;
      latest = counter.doneAt;
      remote = counter.remote;
    }
    (remote ? replay_.waits.arrival : replay_.waits.producer) += now_ - core.since;
    core.isBusy = true;
    core.busy += task.seconds;
  }

  void pass(const Moment& moment) {
    const SlotRun& task = runs_[moment.run].slots[moment.slot];
    bool completed = false;
    if (moment.core == kNone) {
      completed = signal(task);
    } else {
      Core& core = cores_[static_cast<size_t>(moment.core)];
      core.isBusy = false;
      core.since = now_;
      --left_;
      if (task.bytes > 0)
        send(moment, task);
      else
        completed = signal(task);
      start(static_cast<size_t>(moment.core));
    }
    if (!completed) return;
    for (size_t core = 0; core < cores_.size(); ++core)
      if (!cores_[core].isBusy) start(core);
  }

  // Other ranks send as this one does, so its sends stand for what it receives.
  void send(const Moment& moment, const SlotRun& task) {
    linkFree_ = std::max(linkFree_, now_) + task.bytes / rates_.link.bandwidth;
    sent_ += task.bytes;
    moments_.push({linkFree_ + rates_.link.latency, made_++, kNone, moment.run, moment.slot});
  }

  // Returns true if an event has just become complete.
  bool signal(const SlotRun& task) {
    bool completed = false;
    for (int64_t id : task.signals) {
      if (id == kNone) continue;
      Counter& counter = counters_[static_cast<size_t>(id)];
      counter.left -= task.amount;
      if (counter.left > 0) continue;
      counter.doneAt = now_;
      completed = true;
    }
    return completed;
  }

  Replay result() {
    replay_.replayed = now_;
    replay_.part = step_.part;
    for (const CorePool& pool : pools_) replay_.pools.push_back({pool, 0});
    for (const Core& core : cores_) {
      replay_.pools[core.pool].busy += core.busy;
      replay_.waits.end += now_ - core.since;
    }
    double rest = sent_ / rates_.link.bandwidth;
    for (const ReplayedPool& pool : replay_.pools) rest = std::max(rest, pool.busy / pool.pool.cores);
    replay_.seconds = now_ + (1 / step_.part - 1) * rest;
    return std::move(replay_);
  }

  const CostProblem& problem_;
  const uint32_t entry_;
  const Rates& rates_;
  const ReplayStep& step_;
  const std::vector<CorePool> pools_;
  std::vector<int64_t> firstCounter_;  // by EventId
  std::vector<Counter> counters_;
  std::vector<FamilyRun> runs_;
  std::vector<std::vector<size_t>> lanes_;  // of runs, by pool, by priority
  std::vector<Core> cores_;
  std::priority_queue<Moment, std::vector<Moment>, std::greater<>> moments_;
  int64_t made_ = 0;
  int64_t heads_ = 0;
  int64_t left_ = 0;
  double now_ = 0;
  double linkFree_ = 0;
  double sent_ = 0;
  Replay replay_;
};

}  // namespace

int32_t expertsToReplay(const CostProblem& problem, const ExpectedRows& rows, const LayerCost& cost,
                        int64_t mostTasks) {
  const TaskProgram& program = problem.program;
  if (program.events.empty()) return 0;
  const auto experts = static_cast<double>(rows.experts);
  double most = 1;
  for (uint32_t entry = 0; entry < program.entries.size(); ++entry) {
    double tasks = 0;
    for (size_t f = 0; f < program.families.size(); ++f)
      if (program.families[f].entry.value == entry) tasks += cost.families[f].tasks;
    most = std::max(most, tasks);
  }
  return static_cast<int32_t>(std::min(experts, std::floor(experts * static_cast<double>(mostTasks) / most)));
}

std::optional<Replay> replayEntry(const CostProblem& problem, uint32_t entry, LaneRule rule,
                                  const Rates& rates, const ReplayStep& step) {
  return Replayer(problem, entry, rates, step).run(rule);
}

}  // namespace sluice

#include "runtime/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "runtime/comm/in_process.h"
#include "runtime/sim/links.h"
#include "runtime/sim/moments.h"
#include "runtime/sim/sim_rank.h"

namespace sluice {
namespace {

// The signals that a piece brings, for the count of arrivals and at most kMaxLinks events.
struct Message {
  uint32_t source = 0;  // its place
  double bytes = 0;
  uint32_t signals = 0;
  std::array<std::pair<size_t, uint64_t>, kMaxLinks + 1> words;
};

// Ranks have places: their numbers or, if one stands for all, 0.
class Simulator {
 public:
  // `tables` has the tables of the ranks from `first` on: of all, or of one that stands for all.
  Simulator(const Plan& plan, EntryId entry, int first, std::span<const RoutingTables> tables,
            const Rates& rates, const SimOptions& options)
      : plan_(plan),
        entry_(entry),
        isRecorded_(options.spans),
        costs_(plan.program(), rates),
        links_(rates.link, int(tables.size())),
        moments_(tables.size()) {
    const int cores = countCores(plan.program());
    workers_ = options.workers > 0 ? std::min(options.workers, cores) : cores;
    for (size_t place = 0; place < tables.size(); ++place)
      ranks_.push_back(std::make_unique<SimRank>(plan, entry, first + static_cast<int>(place), tables[place],
                                                 workers_, options.spans, costs_));
    isTouched_.resize(ranks_.size());
  }

  Expected<SimResult> run() {
    for (uint32_t place = 0; place < ranks_.size(); ++place) touch(place);
    startTouched();
    while (!moments_.empty()) {
      now_ = moments_.first().time;
      if (now_ >= kMaxSimTime)
        return Error{fmt::format("entry '{}' takes more than {:g} s of simulated time",
                                 plan_.program().at(entry_).name, toSeconds(kMaxSimTime))};
      while (!moments_.empty() && moments_.first().time == now_) pass(moments_.pop());
      startTouched();
    }
    for (const auto& rank : ranks_)
      if (rank->anyLeft()) return Error{describeHang(*rank)};
    return result();
  }

 private:
  uint32_t rankIndex(int rank) const { return ranks_.size() == 1 ? 0 : static_cast<uint32_t>(rank); }

  void touch(uint32_t place) {
    if (isTouched_[place]) return;
    isTouched_[place] = true;
    touched_.push_back(place);
  }

  // Ranks in order, so that the numbers of moments do not depend on who touched them.
  void startTouched() {
    std::ranges::sort(touched_);
    for (const uint32_t place : touched_) {
      started_.clear();
      ranks_[place]->startReady(now_, started_);
      for (const SimRank::Started& started : started_)
        push({started.end, 0, Moment::Kind::kTask, place, static_cast<uint32_t>(started.worker)});
      isTouched_[place] = false;
    }
    touched_.clear();
  }

  void push(Moment moment) {
    moment.number = made_++;
    moments_.push(moment);
  }

  void pass(const Moment& moment) {
    switch (moment.kind) {
      case Moment::Kind::kTask:
        return endTask(moment.rank, static_cast<int>(moment.index));
      case Moment::Kind::kHead:
        return push({links_.receive(static_cast<int>(moment.rank), messages_[moment.index].bytes, now_), 0,
                     Moment::Kind::kArrival, moment.rank, moment.index});
      case Moment::Kind::kArrival:
        return arrive(moment.rank, moment.index);
    }
  }

  void endTask(uint32_t place, int worker) {
    SimRank& rank = *ranks_[place];
    const Task task = rank.finish(worker, now_);
    touch(place);
    const Step& step = rank.step();
    const SpaceKind space = plan_.at(task.family).space;
    const int peer = taskPeer(step, space, task.slot);
    Message message{place, 0, 0, {}};
    forSignals(step, task, [&](int to, size_t word, uint64_t n) {
      if (to == step.rank)
        rank.add(word, n);
      else
        message.words[message.signals++] = {word, n};
    });
    if (peer == step.rank) return;
    const int64_t bytes = pieceRowBytes(plan_.program(), plan_.program().at(task.family)) *
                          findPiece(*step.tables, space, task.slot).rows;
    message.bytes = static_cast<double>(bytes);
    rank.countSent(bytes);
    rank.countOutstanding(1, now_);
    const uint32_t receiver = rankIndex(peer);
    ranks_[receiver]->countOutstanding(1, now_);
    push({links_.send(static_cast<int>(place), message.bytes, now_), 0, Moment::Kind::kHead, receiver,
          keep(message)});
  }

  uint32_t keep(const Message& message) {
    if (unused_.empty()) {
      messages_.push_back(message);
      return static_cast<uint32_t>(messages_.size() - 1);
    }
    const uint32_t index = unused_.back();
    unused_.pop_back();
    messages_[index] = message;
    return index;
  }

  void arrive(uint32_t place, uint32_t index) {
    SimRank& rank = *ranks_[place];
    const Message& message = messages_[index];
    for (uint32_t i = 0; i < message.signals; ++i) rank.add(message.words[i].first, message.words[i].second);
    rank.countOutstanding(-1, now_);
    ranks_[message.source]->countOutstanding(-1, now_);
    unused_.push_back(index);
    touch(place);
  }

  std::string describeHang(SimRank& rank) const {
    InProcessGroup group(plan_.program().mesh.peers());  // messages name ranks by it
    return "in simulated time: " + rank.describeHang(group.transport(rank.step().rank), now_);
  }

  SimResult result() {
    SimResult result;
    result.entry = entry_;
    result.moments = made_;
    result.workers = workers_;
    const TaskProgram& program = plan_.program();
    result.kindsApart = program.cubeCores > 0 && workers_ == countCores(program);
    result.families.resize(program.families.size());
    for (const auto& rank : ranks_) {
      result.ranks.push_back(rank->finishTimes());
      result.end = std::max(result.end, result.ranks.back().end);
      result.tasks += result.ranks.back().tasks;
      for (size_t f = 0; f < result.families.size(); ++f) add(rank->families()[f], result.families[f]);
      if (!isRecorded_) continue;
      const RoutingTables& tables = *rank->step().tables;
      result.traces.push_back(rank->takeTrace());
      result.traces.back().routings.push_back({tables.tokens, listPlaces(plan_.routingShape(), tables)});
    }
    return result;
  }

  static void add(const SimFamily& of, SimFamily& sum) {
    if (of.tasks == 0) return;
    sum.firstStart = sum.tasks == 0 ? of.firstStart : std::min(sum.firstStart, of.firstStart);
    sum.lastEnd = std::max(sum.lastEnd, of.lastEnd);
    sum.tasks += of.tasks;
    sum.empty += of.empty;
    sum.busy += std::min(of.busy, std::numeric_limits<SimTime>::max() - sum.busy);
  }

  const Plan& plan_;
  const EntryId entry_;
  const bool isRecorded_;
  TaskCosts costs_;
  Links links_;
  int workers_ = 1;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  Moments moments_;
  int64_t made_ = 0;
  SimTime now_ = 0;
  std::vector<Message> messages_;
  std::vector<uint32_t> unused_;  // of messages_
  std::vector<bool> isTouched_;   // by place: a worker may have a ready head
  std::vector<uint32_t> touched_;
  std::vector<SimRank::Started> started_;
};

Expected<SimResult> run(const Plan& plan, EntryId entry, int first, std::span<const RoutingTables> tables,
                        const Rates& rates, const SimOptions& options) {
  try {
    return Simulator(plan, entry, first, tables, rates, options).run();
  } catch (const std::bad_alloc&) {
    return Error{fmt::format("out of memory for {} ranks", tables.size())};
  }
}

}  // namespace

Expected<SimResult> simulateEntry(const Plan& plan, EntryId entry, std::span<const RoutingTables> tables,
                                  const Rates& rates, const SimOptions& options) {
  assert(tables.size() == static_cast<size_t>(plan.program().mesh.peers()));
  return run(plan, entry, 0, tables, rates, options);
}

Expected<SimResult> simulateOneForAll(const Plan& plan, EntryId entry, int rank, const RoutingTables& tables,
                                      const Rates& rates, const SimOptions& options) {
  return run(plan, entry, rank, {&tables, 1}, rates, options);
}

}  // namespace sluice

// EventTable: the counters and thresholds of one rank.
//
// A counter has its own cache line in symmetric memory; a thread that finds it complete sees everything that
// was written before the signals. Thresholds are local. Counters are read and added to by any thread;
// setThresholds and clear are called by one thread while no step runs.
#pragma once

#include <vector>

#include "runtime/comm/transport.h"
#include "runtime/exec/plan.h"

namespace sluice {

// One counter and its threshold, for repeated polling. Valid for one step. The counter of no event is
// complete.
class EventCounter {
 public:
  EventCounter() = default;
  EventCounter(uint64_t* have, uint64_t need) : have_(have), need_(need) {}
  bool isComplete() const {
    // pairs with Transport::signal(); seq_cst for the doorbell's sake
    return need_ == 0 || std::atomic_ref<uint64_t>(*have_).load(std::memory_order_seq_cst) >= need_;
  }

 private:
  uint64_t* have_ = nullptr;
  uint64_t need_ = 0;
};

class EventTable {
 public:
  // Collective.
  static Expected<EventTable> create(const Plan& plan, Transport& transport);

  bool isComplete(EventId event, int64_t index) const { return have(event, index) >= need(event, index); }
  uint64_t have(EventId event, int64_t index) const { return load(offset(event, index)); }
  uint64_t need(EventId event, int64_t index) const { return arrays_[event.value].thresholds[index]; }
  EventCounter counter(EventId event, int64_t index) const {
    return {reinterpret_cast<uint64_t*>(local_ + offset(event, index)), need(event, index)};
  }
  int64_t live(EventId event) const { return static_cast<int64_t>(arrays_[event.value].thresholds.size()); }

  // Adds n to the event of `rank`.
  void signal(int rank, EventId event, int64_t index, uint64_t n) {
    transport_->signal(rank, memory_, offset(event, index), n);
  }

  // Rows of `space` pieces (sends or returns) that came from `source` in this step; kept for reports only,
  // and never cleared: rows that no task waits for may arrive after the step.
  void countArrival(int rank, SpaceKind space, uint64_t rows) {
    transport_->signal(rank, memory_, arrivalOffset(space, transport_->rank()), rows);
  }
  uint64_t arrivedFrom(SpaceKind space, int source) const {
    return load(arrivalOffset(space, source)) - arrivedBefore_[arrivalLine(space, source)];
  }

  // Evaluates the threshold rules of all event arrays of `entry`.
  void setThresholds(const Plan& plan, EntryId entry, const RoutingTables& tables);

  // Zeroes the counters of `entry`'s last step, which had these tables. After it, counts may be posted.
  void clear(const Plan& plan, EntryId entry, const RoutingTables& tables);

 private:
  struct Array {
    size_t offset = 0;
    std::vector<uint64_t> thresholds;  // of the live events of this step
  };
  static constexpr size_t kLine = 64;

  size_t offset(EventId event, int64_t index) const { return arrays_[event.value].offset + index * kLine; }
  size_t arrivalLine(SpaceKind space, int source) const {
    return static_cast<size_t>((space == SpaceKind::kReturns ? ranks_ : 0) + source);
  }
  size_t arrivalOffset(SpaceKind space, int source) const {
    return arrivals_ + arrivalLine(space, source) * kLine;
  }
  uint64_t load(size_t offset) const {
    // pairs with Transport::signal(); seq_cst for the doorbell's sake
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(local_ + offset))
        .load(std::memory_order_seq_cst);
  }

  Transport* transport_ = nullptr;
  SymmetricHandle memory_;
  std::byte* local_ = nullptr;
  std::vector<Array> arrays_;
  size_t arrivals_ = 0;
  std::vector<uint64_t> arrivedBefore_;  // this step, by line
  int ranks_ = 0;
};

// The threshold by the rule at `index`.
uint64_t evaluateThreshold(const EventArray& event, const RoutingTables& tables, int64_t index);

}  // namespace sluice

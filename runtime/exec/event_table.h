// EventTable: the event words and thresholds of one rank: which word counts which event, and its threshold.
//
// A word is a 64-bit counter in a cache line to itself, in symmetric memory of the device. A thread that
// finds it complete sees everything that was written before the signals. A word is identified by its offset
// in that memory, which is the same at all ranks. Thresholds are in host memory. Any thread may read words
// and add to them; only one thread calls the rest, while no task runs. Functions that read or zero words need
// them in host memory: for reports, a device that keeps them elsewhere makes a table of a copy.
#pragma once

#include <vector>

#include "runtime/base/cache_line.h"
#include "runtime/comm/transport.h"
#include "runtime/exec/plan.h"

namespace sluice {

// Memory of equal size at all ranks, to which other ranks write. A value; the device owns the memory.
struct SymmetricMemory {
  SymmetricHandle handle;
  std::byte* data = nullptr;  // this rank's copy
  size_t bytes = 0;
};

// One counter and its threshold, for repeated polling. Valid for one step. Without an event it is always
// complete.
class EventCounter {
 public:
  EventCounter() = default;
  EventCounter(uint64_t* have, uint64_t need) : have_(have), need_(need) {}
  bool isComplete() const {
    // pairs with Transport::signal(); seq_cst, as the doorbell requires
    return need_ == 0 || std::atomic_ref<uint64_t>(*have_).load(std::memory_order_seq_cst) >= need_;
  }

 private:
  uint64_t* have_ = nullptr;
  uint64_t need_ = 0;
};

class EventTable {
 public:
  EventTable() = default;
  // `words` must have bytesFor() bytes, all 0.
  EventTable(const Plan& plan, int ranks, SymmetricMemory words);
  static size_t bytesFor(const Plan& plan, int ranks);

  const SymmetricMemory& words() const { return words_; }
  // The offset of an event's counter in words().
  size_t word(EventId event, int64_t index) const { return arrays_[event.value].offset + index * kCacheLine; }
  // The offset of the count of rows in `space` pieces (sends or returns) that came from `source`. Only
  // reports use it. It is never cleared, because rows that no task waits for may arrive after the step.
  size_t arrivalWord(SpaceKind space, int source) const {
    return arrivals_ + arrivalLine(space, source) * kCacheLine;
  }

  bool isComplete(EventId event, int64_t index) const { return have(event, index) >= need(event, index); }
  uint64_t have(EventId event, int64_t index) const { return load(word(event, index)); }
  uint64_t need(EventId event, int64_t index) const { return arrays_[event.value].thresholds[index]; }
  EventCounter counter(EventId event, int64_t index) const {
    return {reinterpret_cast<uint64_t*>(words_.data + word(event, index)), need(event, index)};
  }
  int64_t live(EventId event) const { return static_cast<int64_t>(arrays_[event.value].thresholds.size()); }

  // The number of rows that came in this step.
  uint64_t arrivedFrom(SpaceKind space, int source) const {
    return load(arrivalWord(space, source)) - arrivedBefore_[arrivalLine(space, source)];
  }

  // Evaluates the threshold rules of all event arrays of `entry`.
  void setThresholds(const Plan& plan, EntryId entry, const RoutingTables& tables);

  // Zeroes the words of `entry`'s last step, which has ended at this rank. Counts may be posted only
  // afterwards. A device that keeps words elsewhere does it for each stretch: zero(offset, bytes).
  void zero(const Plan& plan, EntryId entry);
  template <class Zero>
  void forWords(const Plan& plan, EntryId entry, const Zero& zero) const {
    const auto& events = plan.program().events;
    for (size_t e = 0; e < events.size(); ++e)
      if (events[e].entry == entry && !arrays_[e].thresholds.empty())
        zero(arrays_[e].offset, arrays_[e].thresholds.size() * kCacheLine);
  }
  // The same events, of a copy of the words in memory of the host.
  EventTable withWords(std::byte* words) const {
    EventTable table = *this;
    table.words_.data = words;
    return table;
  }
  // Call it after the entry's step, which had these tables: its arrivals then do not count for later steps.
  void finish(const Plan& plan, EntryId entry, const RoutingTables& tables);

 private:
  struct Array {
    size_t offset = 0;
    std::vector<uint64_t> thresholds;  // of the live events of this step
  };
  size_t arrivalLine(SpaceKind space, int source) const {
    return static_cast<size_t>((space == SpaceKind::kReturns ? ranks_ : 0) + source);
  }
  uint64_t load(size_t offset) const {
    // pairs with Transport::signal(); seq_cst, as the doorbell requires
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(words_.data + offset))
        .load(std::memory_order_seq_cst);
  }

  SymmetricMemory words_;
  std::vector<Array> arrays_;
  size_t arrivals_ = 0;
  std::vector<uint64_t> arrivedBefore_;  // rows before this step, by arrivalLine()
  int ranks_ = 0;
};

// The threshold of the event at `index`, by its rule.
uint64_t evaluateThreshold(const EventArray& event, const RoutingTables& tables, int64_t index);

}  // namespace sluice

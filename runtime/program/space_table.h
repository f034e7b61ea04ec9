// The space table: the facts of every kind of space and of event, for the planner, the verifier, execution
// and reports. runtime/routing computes the slots that a routing gives a space.
//
// Constant tables and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/program/program.h"

namespace sluice {

struct SpaceInfo {
  std::string_view what;  // "it works on tokens of this rank, in order"
  bool sums;              // a task takes all rows of its expert, or all tokens of its rank
  bool dense;             // of tokens: weights have no expert axis
  bool needsExpert;       // a rank without experts has no tasks of it (sends: no task writes to such a rank)
  EventSpace own;         // the counters numbered as its slots; kOne where there are none
  uint8_t waits;          // event spaces of which a task has an index to wait for: bits by EventSpace
  uint8_t signals;        // likewise to signal, if a threshold rule has the number that is delivered
};
const SpaceInfo& findInfo(SpaceKind kind);

// Whether tasks of the space work on pieces: they write at the rank at the piece's other end, all other tasks
// at their own.
constexpr bool isRemote(SpaceKind kind) { return kind == SpaceKind::kSends || kind == SpaceKind::kReturns; }

// The space whose slots cut this one: the rows space for pieces, else the space itself.
inline SpaceKind cuttingSpace(SpaceKind kind) { return isRemote(kind) ? SpaceKind::kRows : kind; }

// The space that has a slot for each counter.
SpaceKind countedSpace(EventSpace space);

bool canWait(SpaceKind task, EventSpace event);
bool canSignal(SpaceKind task, EventSpace event);

// The finest event that a task of `from` can signal and one of `to` wait for; none: no event joins them.
std::optional<EventSpace> finestEvent(SpaceKind from, SpaceKind to);

// Whether the event is between tasks of one slot of one space; all others are wide.
bool isSlotLocal(SpaceKind producer, SpaceKind consumer, EventSpace event);

// Whether a threshold rule has a factor, and the quantity that it counts, in words.
bool hasFactor(ThresholdRule rule);
std::string_view findPhrase(ThresholdRule rule);

struct Threshold {
  ThresholdRule rule = ThresholdRule::kConstant;
  int64_t factor = 0;
  friend bool operator==(const Threshold&, const Threshold&) = default;
};

// The number that producers of one space, with `tiles` tiles in all of them together, deliver to a counter,
// in `unit`.
Threshold delivered(const TaskProgram& program, EventSpace event, EventUnit unit, SpaceKind producers,
                    int64_t tiles);

// Whether an entry takes its own rows last: it returns rows, but gets none, so its own rows can wait.
bool takesOwnLast(const TaskProgram& program, EntryId entry);

// The space of that kind, or null.
const Space* findSpace(const TaskProgram& program, SpaceKind kind);

// The largest value of an extent for any routing; kFixed: 1.
int64_t largestExtent(const TaskProgram& program, Extent extent);

// The value of an extent in a step with as many tokens as possible that all experts share evenly.
int64_t balancedExtent(const TaskProgram& program, Extent extent);

}  // namespace sluice

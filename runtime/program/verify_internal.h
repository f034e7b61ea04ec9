// The parts of verify(), in the order in which they run: each may rely on what the ones before it checked.
//
// Plain functions on values; no state. Time is bounded by the size of the program and by kMaxFamilies.
// Every list that is indexed by family has one element per family of the program.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/cache_line.h"
#include "runtime/base/expected.h"
#include "runtime/program/coverage.h"
#include "runtime/program/program.h"
#include "runtime/program/space_table.h"
#include "runtime/program/verify.h"
#include "runtime/program/words.h"

namespace sluice::verify_parts {

// Limits that keep every product of this verifier and of bind inside 64 bits, and the time of this verifier
// bounded.
inline constexpr int64_t kMaxCores = 4096;
inline constexpr int64_t kMaxWindow = 1 << 16;
inline constexpr int64_t kMaxFamilies = 512;
inline constexpr int64_t kMaxBytes = int64_t{1} << 46;       // of a region or buffer, at its largest extent
inline constexpr int64_t kMaxRows = (int64_t{1} << 31) - 1;  // rows that one rank may receive
inline constexpr int64_t kLineBytes = kCacheLine;
inline constexpr int64_t kRowUnit = 16;  // bind rounds slots of rows up to it

template <class... Args>
Error fail(fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...)};
}

// "family 'up_proj' of entry 'forward'", and so on; ids in range.
std::string fullName(const TaskProgram& program, FamilyId id);
std::string fullName(const TaskProgram& program, EventId id);
inline std::string fullName(SpaceKind kind) { return text::word(kind); }
inline std::string fullName(EventSpace space) { return text::word(space); }
// "BF16 [R, 1536]"
std::string shapeText(DType type, const std::vector<Dim>& shape);

template <class Tag, class T>
bool inRange(Id<Tag> id, const std::vector<T>& table) {
  return id.value < table.size();
}

// Bytes of one element of the first dimension; kFixed: of the whole buffer. -1: more than kMaxBytes.
int64_t unitBytes(const Buffer& buffer);

inline SpaceKind spaceKindIn(const TaskProgram& program, FamilyId id) {
  return program.at(program.at(id).space).kind;
}

// verify_structure.cc: limits, spaces, entries; then regions and buffers.
// Every name is UTF-8 on one line: it stands in messages, reports and tensor files.
Status checkNames(const TaskProgram& program);
Status checkLimits(const TaskProgram& program);
Status checkSpaces(const TaskProgram& program);
Status checkBuffers(const TaskProgram& program);
Status checkEntries(const TaskProgram& program);

// verify_ops.cc: ids, tilings and operands of families fit their ops, and their events are of their entry.
Status checkFamilies(const TaskProgram& program);

// verify_scales.cc: all families have the same scales, and zeros, for the same codes, and no others.
Status checkPartners(const TaskProgram& program);

// verify_lanes.cc: every (slot, tile) of every family stands once, in one lane.
Status checkLanes(const TaskProgram& program);
// Lanes are sorted by (segment, window, stage, slot).
Status checkLaneOrder(const TaskProgram& program, const std::vector<FamilyOrder>& order);

// Families that signal and that wait for one event array, in order of their ids.
struct EventUse {
  std::vector<FamilyId> producers;
  std::vector<FamilyId> consumers;
};
std::vector<EventUse> collectEventUses(const TaskProgram& program);

// verify_events.cc: indices, units, thresholds, and that remote events are waited for.
Status checkEvents(const TaskProgram& program, const std::vector<EventUse>& uses);

// verify_schedule.cc: segments and stages; an error where families wait for each other in a ring.
Expected<std::vector<FamilyOrder>> orderFamilies(const TaskProgram& program,
                                                 const std::vector<EventUse>& uses);

// covers(c, p): the scope at which all tasks of p that write at this rank are done when a task of c
// starts. Where p is in space sends or returns these are the arrivals, and not p's own tasks of this rank.
class Coverage {
 public:
  explicit Coverage(size_t families) : families_(families), scopes_(families * families, Scope::kNone) {}

  Scope covers(FamilyId c, FamilyId p) const { return scopes_[c.value * families_ + p.value]; }
  void raise(FamilyId c, FamilyId p, Scope scope) {
    Scope& old = scopes_[c.value * families_ + p.value];
    old = std::max(old, scope);
  }

 private:
  size_t families_;
  std::vector<Scope> scopes_;
};

// verify_memory.cc: single write, read after write, roles across entries.
Status checkAccesses(const TaskProgram& program, const Coverage& coverage);
// verify_regions.cc: what buffers may share a region.
Status checkSharing(const TaskProgram& program, const Coverage& coverage);

}  // namespace sluice::verify_parts

// The algebra of coverage: which tasks of other families are done when a task starts, for every routing.
//
// A family covers the producers of an event that it waits for at the scope of the event's space, since the
// threshold counts all of them. It also covers the families that those cover, if their tasks are sure to
// exist: an expert may have no rows, a rank may receive none or have no tokens. A remote producer ran at
// another rank and covered tasks there, from which nothing follows for this rank.
//
// The planner of the compiler and the verifier share this one copy on purpose. Tests that share nothing with
// it check that it is right: the oracles in tests/runtime/program (verify_oracle*) and the runs of small
// models over all routings in tests/proof.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/program/program.h"

namespace sluice {

// How much of another family is done: its tasks that have rows of the slot, group or expert of this task, or
// all of its tasks. A task with no slot of rows and no expert (tokens) has the scopes kSlot, its own slot of
// tokens, and kAll; a task in groups has kGroup and wider ones. If the other family sends or returns, the
// scope is about the arrivals at this rank, not about the tasks of this rank.
enum class Scope : uint8_t { kNone = 0, kSlot = 1, kGroup = 2, kExpert = 3, kAll = 4 };

// "its slot", "all slots", for messages.
std::string_view scopeText(Scope scope);

// The scope at which a wait for an event of this space covers its producers.
Scope findScope(EventSpace space);

// The scope at which c covers p, if c covers q directly at `direct` and q covers p at `beyond`. `everywhere`:
// every rank owns an expert.
Scope compose(SpaceKind c, SpaceKind q, SpaceKind p, Scope direct, Scope beyond, bool everywhere);

// The scope at which a family of space `reader` must cover the writer, in its entry, of a buffer it reads.
Scope scopeToRead(SpaceKind reader, Extent extent);

// The scope at which `writer` must cover a family that earlier reads or writes the same memory; elements of
// both buffers are of this extent.
Scope scopeToReuse(SpaceKind writer, SpaceKind user, Extent extent);

}  // namespace sluice

// The algebra of coverage: which tasks of other families are done when a task starts, for every routing.
//
// A family covers the producers of an event that it waits for at the scope of the event's space, since the
// threshold counts all of them; and what those covered, as far as their tasks are sure to exist: an expert
// may have no rows, a rank may receive none or have no tokens. A remote producer ran at another rank and
// covered tasks there: nothing follows for this one.
//
// One copy on purpose: the planner of the compiler and the verifier both use it. That it is right is judged
// by what shares nothing with it: the oracles in tests/runtime/program (verify_oracle*) and the runs of small
// models over all routings in tests/proof.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/program/program.h"

namespace sluice {

// How much of another family is done: its tasks that have rows of the slot, group or expert of this one, or
// all. Scopes of a task with no slot of rows and no expert (tokens) are kSlot, its own slot of tokens, and
// kAll; those of one in groups are kGroup and wider. Where the other sends or returns these are the arrivals
// at this rank, and not the tasks of this rank.
enum class Scope : uint8_t { kNone = 0, kSlot = 1, kGroup = 2, kExpert = 3, kAll = 4 };

// "its slot", "all slots", for messages.
std::string_view scopeText(Scope scope);

// The scope at which a wait for an event of this space covers its producers.
Scope scopeOf(EventSpace space);

// c covers q directly at `near`, q covers p at `far`: the scope at which c covers p. `everywhere`: every rank
// owns an expert.
Scope compose(SpaceKind c, SpaceKind q, SpaceKind p, Scope near, Scope far, bool everywhere);

// The scope at which a family of space `reader` must cover the writer, in its entry, of a buffer it reads.
Scope scopeToRead(SpaceKind reader, Extent extent);

// The scope at which `writer` must cover a family that reads or writes the memory before it, of which both
// know elements of this extent.
Scope scopeToReuse(SpaceKind writer, SpaceKind user, Extent extent);

}  // namespace sluice

// ProgramBuilder: fills the tables of a TaskProgram family by family, without the compiler.
//
// Every family has its own lane; task (slot, tile) goes to seat (slot * tiles + tile) mod cores, and dealing
// continues across windows. Value type. It does not check what it builds: verify() does.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

// Extents of run-time sizes, and of a fixed number.
inline constexpr Dim kDimT{Extent::kTokens, 0};
inline constexpr Dim kDimR{Extent::kRows, 0};
inline constexpr Dim kDimP{Extent::kPairs, 0};
constexpr Dim fixedDim(int64_t size) { return {Extent::kFixed, size}; }

// Everything that a family needs except its lane, which is derived.
struct FamilySpec {
  const char* name;
  OpKind op;
  SpaceId space;
  int32_t tiles;
  Tiling tiling;
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;
  std::array<EventId, 2> waits;  // those that are none do not count
  std::array<EventId, 2> signals;
  int32_t priority;
};

class ProgramBuilder {
 public:
  TaskProgram program;
  EntryId entry;  // the entry that new events and families belong to

  // slotSize: of tokens or rows; window: slots. Spaces of experts and once have 1 and 1.
  SpaceId space(const char* name, SpaceKind kind, int slotSize = 1, int window = 1);
  void beginEntry(const char* name, BufferId expertIds, EntryId routing);

  RegionId region(const char* name, Extent extent, int64_t rowBytes, bool symmetric, bool saved);
  BufferId buffer(const char* name, DType type, std::vector<Dim> shape, Role role, RegionId region = {});

  // A buffer with its own region, named like the buffer; its first dimension is a run-time extent.
  BufferId own(const char* name, DType type, std::vector<Dim> shape, Role role, bool symmetric = false);

  EventId event(const char* name, EventSpace space, EventUnit unit, ThresholdRule rule, int64_t factor,
                bool remote);
  EventId rowsArrived();                                            // the rows of a slot
  EventId expertRows();                                             // the rows of an expert
  EventId allReturned();                                            // all pairs of this rank
  EventId done(const char* name, EventSpace space, int64_t tiles);  // the tasks of a slot of rows or tokens
  EventId expertDone(const char* name, int64_t tiles);              // the tasks of all slots of an expert
  EventId allTokens(const char* name, int64_t tiles);               // the tasks of all slots of tokens
  EventId allExperts(const char* name, int64_t tiles);              // the tasks of all experts of a rank

  void family(FamilySpec spec);
};

}  // namespace sluice

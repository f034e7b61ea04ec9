// TaskProgram: the hinge between compiler and runtime; it holds the complete content of a program file.
//
// Value type: copy, compare, no pointers. program.fbs is its form on disk, text.h its form for people;
// both carry every field, so that decode(encode(p)) == p and parse(print(p)) == p. A TaskProgram may hold
// anything; only verify() makes it a VerifiedProgram, and only that is executed.
//
// Words: docs/PROGRAM.md. One program serves all ranks; "this rank" is the rank that executes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/id.h"
#include "runtime/base/mesh.h"
#include "runtime/base/tiling.h"

namespace sluice {

inline constexpr uint32_t kFormatMajor = 1;
inline constexpr uint32_t kFormatMinor = 15;

// Upper limits that every program keeps; decode and verify refuse more.
inline constexpr int64_t kMaxRanks = 4096;
inline constexpr int64_t kMaxExperts = 65536;
inline constexpr int64_t kMaxTopK = 64;
inline constexpr int64_t kMaxTokens = 1 << 22;
inline constexpr int64_t kMaxDim = 1 << 20;  // any fixed dimension of a tensor except an expert axis
inline constexpr size_t kMaxLinks = 2;       // events that a family waits for, or signals

// --- Extents -------------------------------------------------------------------------------------------

struct Dim {
  Extent extent = Extent::kFixed;
  int64_t size = 0;  // kFixed only; else 0
  friend bool operator==(const Dim&, const Dim&) = default;
};

// --- Memory --------------------------------------------------------------------------------------------

// A stretch of runtime-owned memory: `stride` bytes per unit of `extent` (kFixed: `stride` bytes in all).
// Buffers whose lifetimes or places do not overlap may share a region. Element i of a buffer of a run-time
// extent is at i * stride + offset, so that tasks of one slot touch the same part of the region in all
// buffers.
struct Region {
  std::string name;
  Extent extent = Extent::kFixed;
  int64_t stride = 0;      // bytes; a multiple of the element size of every buffer in it
  bool symmetric = false;  // other ranks write to it: present at every rank under the same id
  bool saved = false;      // keeps its content from one entry to a later one
  friend bool operator==(const Region&, const Region&) = default;
};

struct Buffer {
  std::string name;  // unique in the program; of inputs and outputs, the name of the tensor in the graph
  DType type = DType::kF32;
  std::vector<Dim> shape;  // outermost first; only the first may be a run-time extent
  Role role = Role::kTemp;
  RegionId region;     // none: the caller's memory, contiguous, row-major
  int64_t offset = 0;  // bytes from the begin of the region's stride; 0 without a region
  Sharding sharding = Sharding::kWhole;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

// --- Spaces and events ---------------------------------------------------------------------------------

struct Space {
  std::string name;
  SpaceKind kind = SpaceKind::kRows;
  int32_t slotSize = 0;  // tokens or rows per slot; sends and returns: as the rows space; groups: a
                         // multiple, at least twice, of the rows space's; experts and once: 1
  int32_t window = 1;    // slots that one run of a lane's table covers
  friend bool operator==(const Space&, const Space&) = default;
};

// An array of counters that only grow within a step. An event is complete when it reaches its threshold;
// an event with threshold 0 is complete at bind.
//
// The spaces of task and event determine the counter that the task uses: the counter of the task's slot, of
// the group or expert of that slot, of the slot, group or expert to which its piece belongs, or the only
// counter.
struct EventArray {
  std::string name;
  EntryId entry;
  EventSpace space = EventSpace::kOne;
  EventUnit unit = EventUnit::kTasks;
  ThresholdRule rule = ThresholdRule::kConstant;
  int64_t factor = 0;   // kConstant and the rules that count slots, groups or experts; else 0
  bool remote = false;  // signalled by tasks of sends or returns, at the rank that receives their piece
  friend bool operator==(const EventArray&, const EventArray&) = default;
};

// --- Families ------------------------------------------------------------------------------------------

// One node after splitting: its tasks differ in slot (of `space`) and tile (0 .. tiles-1) only.
struct Family {
  std::string
      name;  // unique in its entry: the node's name, with ".return", ".sum" for the halves of a combine
  std::string source;  // "file:line:column" of the node, or empty
  EntryId entry;
  OpKind op = OpKind::kGmm;
  CoreKind core = CoreKind::kUnified;
  SpaceId space;
  int32_t tiles = 1;
  Tiling tiling;
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;
  std::vector<EventId> waits;    // of its entry: a task starts when these are complete
  std::vector<EventId> signals;  // of its entry: a task adds to these when it has ended
  friend bool operator==(const Family&, const Family&) = default;
};

// --- Lanes ---------------------------------------------------------------------------------------------

// One row of a core's table.
struct TaskRecord {
  FamilyId family;
  uint32_t slot = 0;  // in the window: 0 .. window-1
  uint32_t tile = 0;
  friend bool operator==(const TaskRecord&, const TaskRecord&) = default;
};
static_assert(sizeof(TaskRecord) == 12);

// In-order lists of tasks, one per core, compiled for one window of `space` and run once per window. They run
// on the cores of kind `core` numbered firstCore .. firstCore + seats - 1. In window w the c-th of them runs
// seats[(c - w * rotation) mod seats], so that the deal continues across windows.
struct Lane {
  std::string name;
  EntryId entry;
  SpaceId space;
  CoreKind core = CoreKind::kUnified;
  int32_t priority = 0;                        // a worker tries smaller numbers first
  int32_t rotation = 0;                        // 0 .. seats-1
  std::vector<std::vector<TaskRecord>> seats;  // one list per core
  int32_t firstCore = 0;                       // in its kind
  friend bool operator==(const Lane&, const Lane&) = default;
};

// --- Program -------------------------------------------------------------------------------------------

// The unit that the caller runs. Tensors are bound by name. It routes by expert ids, or as an earlier entry
// did, whose slot tables it then uses, or, with neither, sends every token to every expert.
struct Entry {
  std::string name;
  BufferId expertIds;       // I32 [T,K]
  EntryId routing;          // none if expertIds is given; else an earlier entry that routes
  BufferId placement = {};  // I32 [experts]: the id of the expert at each place; none: expert i is at place i
  bool routes() const { return routing.none(); }
  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Symbol {
  std::string name;
  int64_t value = 0;
  friend bool operator==(const Symbol&, const Symbol&) = default;
};

struct TaskProgram {
  // identity
  std::string name;
  std::string target;      // device model it was compiled for
  std::string options;     // one line, as given to the compiler
  uint64_t graphHash = 0;  // of the graph after symbols were set
  std::vector<Symbol> symbols;

  // limits
  Mesh mesh;
  int32_t experts = 1;  // of all ranks; deal() has their owners
  // With spare places, `experts` counts places; ids name `experts` - `spare` experts, each of which has one
  // place or more (routing/placement.h).
  int32_t spare = 0;
  int32_t topK = 1;
  int32_t maxTokens = 1;  // of one rank
  // Cores of one rank: `cores` unified ones or, if matrix and vector cores are separate, the other two.
  int32_t cores = 1;
  int32_t cubeCores = 0;
  int32_t vectorCores = 0;

  std::vector<Entry> entries;
  std::vector<Region> regions;
  std::vector<Buffer> buffers;
  std::vector<Space> spaces;  // at most one of each kind
  std::vector<EventArray> events;
  std::vector<Family> families;
  std::vector<Lane> lanes;

  friend bool operator==(const TaskProgram&, const TaskProgram&) = default;

  const Entry& at(EntryId id) const { return entries[id.value]; }
  const Region& at(RegionId id) const { return regions[id.value]; }
  const Buffer& at(BufferId id) const { return buffers[id.value]; }
  const Space& at(SpaceId id) const { return spaces[id.value]; }
  const EventArray& at(EventId id) const { return events[id.value]; }
  const Family& at(FamilyId id) const { return families[id.value]; }
  const Lane& at(LaneId id) const { return lanes[id.value]; }

  ExpertDeal deal() const { return {mesh, experts}; }
  int32_t findFirstExpert(int32_t rank) const { return deal().first(rank); }
  int32_t countExperts(int32_t rank) const { return deal().of(rank); }
  int32_t maxExperts() const { return deal().most(); }
  bool expertsDiffer() const { return deal().differ(); }
  // The expert axis of weights and weight gradients.
  Dim expertDim() const {
    return expertsDiffer() ? Dim{Extent::kExperts, 0} : Dim{Extent::kFixed, maxExperts()};
  }
  // The size of a dimension of a caller's tensor at a rank with this many tokens and rows.
  int64_t sizeAt(int32_t rank, const Dim& dim, int64_t tokens, int64_t rows = 0) const {
    if (dim.extent == Extent::kExperts) return countExperts(rank);
    return dim.extent == Extent::kTokens ? tokens : dim.extent == Extent::kRows ? rows : dim.size;
  }
  int32_t coreCount(CoreKind kind) const {
    return kind == CoreKind::kUnified ? cores : kind == CoreKind::kCube ? cubeCores : vectorCores;
  }
};

}  // namespace sluice

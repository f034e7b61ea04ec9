// The memory of a program: which buffers may share it for every routing (their lifetimes), how many bytes
// must be live at once, and the plan that places them.
//
// The rule of lifetimes is the same as in runtime/program/verify_regions.cc, with the same algebra
// (coverage.h there). Saved buffers and outputs that the runtime owns share with no other buffer. Temporaries
// of different entries always share: a rank starts an entry after the previous one has ended. Within one
// entry, the writer of the later buffer must cover every reader and writer of the earlier one, for the
// elements they have in common; writes of other ranks may arrive as soon as the entry begins, and a rank
// never learns when its own sent rows are no longer in use.
//
// Value types and free functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/analysis/finding.h"
#include "runtime/program/program.h"

namespace sluice {

// A number of bytes or operations, known at run time: fixed + tokens T + rows R + pairs P + experts E. The
// last term exists if ranks own different numbers of experts.
struct Formula {
  int64_t fixed = 0;
  int64_t tokens = 0;
  int64_t rows = 0;
  int64_t pairs = 0;
  int64_t experts = 0;

  int64_t& at(Extent extent);
  int64_t at(Extent extent) const { return Formula(*this).at(extent); }
  Formula& operator+=(const Formula& other);
  friend bool operator==(const Formula&, const Formula&) = default;
};

// Its value in a balanced step with max_tokens tokens per rank, at a rank that owns the most experts.
double inBalancedStep(const TaskProgram& program, Formula formula);

Extent findExtent(const Buffer& buffer);

// Bytes per index of the outermost dimension if that is a run-time extent, else of the whole buffer.
int64_t bytesPerUnit(const Buffer& buffer);

// Returns `bytes` for each unit of the extent, or the bytes of a buffer.
Formula sizeFormula(Extent extent, int64_t bytes);
Formula sizeFormula(const Buffer& buffer);

// Memory that the plan places: temporaries, saved tensors and outputs of rows.
bool isOwnedByRuntime(const Buffer& buffer);

class Lifetimes {
 public:
  explicit Lifetimes(const TaskProgram& program);

  // Whether two different buffers that the runtime owns may lie in one region.
  bool mayShare(BufferId a, BufferId b) const { return mayShare_[a.value * count_ + b.value] != 0 && a != b; }

  // Whether families of the entry access the buffer, or it keeps its content during the entry.
  bool isLive(BufferId buffer, EntryId entry) const;

  // Whether tasks of other ranks write it.
  bool isRemote(BufferId buffer) const { return uses_[buffer.value].remote; }

 private:
  struct Uses {
    std::vector<uint32_t> writers;
    std::vector<uint32_t> readers;
    std::vector<bool> entries;
    bool remote = false;
  };
  void addUses(const TaskProgram& program);

  std::vector<Uses> uses_;  // by BufferId
  std::vector<uint8_t> mayShare_;
  size_t count_ = 0;
};

// The peak of live bytes of an entry: the most bytes in buffers of which no two may share memory. Every plan
// that verify() accepts needs at least this. Each run-time extent is counted separately, since none bounds
// another.
Formula peakOfEntry(const TaskProgram& program, const Lifetimes& lifetimes, EntryId entry);

// Likewise for the whole program: saved buffers plus the largest peak of an entry's temporaries.
Formula peakOfProgram(const TaskProgram& program, const Lifetimes& lifetimes);

// plan-memory: the region of each runtime-owned buffer, and its place in the region's strides. Buffers share
// bytes of a region if their lifetimes allow it and they have the same extent. Buffers of less than 64 bytes
// per row never share a region with wider ones: that would cost one cache line per row.
//
// `program` has no regions. Afterwards every temporary buffer, every saved buffer and every output of rows
// has a region, and a place in its stride.
//
// Deterministic: widest rows first, then in order of declaration; each buffer takes the first region it fits.
// If that takes more than must be live at once, other orders are tried, moving one buffer at a time, as long
// as it helps and for a bounded time. If regions that hold one buffer at a time are still too large,
// temporary buffers are also placed side by side: each in the region that grows least, at the lowest place
// that is free while it lives. A region has the name of its first buffer. Errors: a program that already has
// regions.
Expected<TaskProgram> planMemory(TaskProgram program);

}  // namespace sluice

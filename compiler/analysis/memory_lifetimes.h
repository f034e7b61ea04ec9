// Lifetimes: which buffers may share memory whatever the routing, and how many bytes must be there at once.
//
// The rule is that of runtime/program/verify_regions.cc, by the same algebra (coverage.h there). Saved
// buffers and outputs that the runtime owns share with nobody. Temporaries of different entries share always:
// a rank starts an entry when the one before has ended. In one entry the writer of the later must cover every
// reader and writer of the earlier, for the elements they have in common; what other ranks write may arrive
// as soon as the entry begins, and a rank never learns when what it sent itself is done with.
//
// Value types and free functions.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

// A number of bytes or operations, known at run time: fixed + tokens T + rows R + pairs P + experts E, the
// last where ranks own different numbers of experts.
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

// Its value in a step with `tokens` tokens a rank and as many rows and pairs as that makes: tokens * topK, at
// a rank with that many experts.
double inBalancedStep(const Formula& formula, int64_t tokens, int64_t topK, int64_t experts);

// Likewise with max_tokens tokens, at a rank that owns most experts.
double inBalancedStep(const TaskProgram& program, const Formula& formula);

Extent extentOf(const Buffer& buffer);

// Bytes of one element of the outermost dimension where that is a run-time extent, else of the whole buffer.
int64_t bytesPerUnit(const Buffer& buffer);

// Memory that the plan places: temporaries, saved tensors and outputs of rows.
bool isOwnedByRuntime(const Buffer& buffer);

class Lifetimes {
 public:
  explicit Lifetimes(const TaskProgram& program);

  // Whether two different buffers that the runtime owns may lie in one region.
  bool mayShare(BufferId a, BufferId b) const { return mayShare_[a.value * count_ + b.value] != 0 && a != b; }

  // Whether families of the entry touch the buffer, or it keeps its content over the entry.
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

// The peak of live bytes of an entry: the most that buffers hold of which no two may share. No plan that
// verify() accepts needs less. Runtime extents are told apart, since none bounds another.
Formula peakOfEntry(const TaskProgram& program, const Lifetimes& lifetimes, EntryId entry);

// Likewise of the whole program: what is saved, and the largest peak of the temporaries of an entry.
Formula peakOfProgram(const TaskProgram& program, const Lifetimes& lifetimes);

}  // namespace sluice

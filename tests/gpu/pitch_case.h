// A random case for the kernel of chained products whose rows lie 3 GB apart, so that an offset which is
// computed in 32 bits is found.
//
// All matrices lie side by side in the rows of one memory, which is only mapped. The same tasks, of every
// kind, also run on rows that follow each other, and must give the same bits there: what they are is for
// other cases.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::gpu {

class PitchCase {
 public:
  explicit PitchCase(uint64_t seed) : seed_(seed) {}

  // Runs the kernel with both pitches. Returns what is wrong: what the model found, a report, or a byte that
  // differs; empty: nothing.
  std::string run(int blocks, uint64_t seed) const;

 private:
  uint64_t seed_;
};

}  // namespace sluice::gpu

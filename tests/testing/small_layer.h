// A small layer whose sizes are no multiples of anything, and runs of it on random data. A failure throws
// std::runtime_error with its message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/moe_program.h"
#include "tests/testing/program_data.h"

namespace sluice {

inline const std::vector<std::string> kBoth = {"forward", "backward"};

// Three experts per rank, at most 90 tokens per rank.
MoeShape smallShape(int ranks);

struct Sample {
  std::vector<int64_t> tokens;  // by rank
  DataRouting routing;
  uint32_t seed;
};

// For 1 to 4 ranks: ragged, masked pairs with empty ranks, no tokens at all, experts without rows.
std::vector<Sample> samplesOf(int ranks);

LayerData dataFor(const Program& program, const Sample& sample);

// The data of the sample after the entries have run.
LayerData runOn(const Program& program, const Sample& sample, const ContextOptions& options,
                const std::vector<std::string>& entries = kBoth, const WrapTransport& wrap = {});

}  // namespace sluice

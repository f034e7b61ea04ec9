// The routing for which a program is tuned, and the rows per expert that follow from it.
//
// Value types and free functions of values. Any routing is executed correctly; this one is expected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/mesh.h"

namespace sluice {

struct Expectation {
  std::string name = "uniform";  // as the user gave it
  double exponent = 0;           // zipf: expert e is chosen in proportion to 1 / (e + 1)^exponent
  std::vector<double> shares;    // given: of each expert, any scale; else empty
  friend bool operator==(const Expectation&, const Expectation&) = default;
};

struct StepShape {
  Mesh mesh;
  int64_t experts = 1;  // of all ranks; ExpertDeal has their owners
  int64_t topK = 1;
  int64_t tokens = 1;  // of each rank
};

// Experts of one rank that expect about as many rows each.
struct ExpertGroup {
  double rows = 0;  // of one expert
  double experts = 0;
};

// The rows of the rank that expects most (among equals, the one with more experts), the busiest experts
// first. The number of groups is small for any number of experts. An expert gets at most one row per token.
struct ExpectedRows {
  std::vector<ExpertGroup> groups;
  double rows = 0;      // of that rank, all experts together
  int64_t experts = 0;  // that it owns
};

ExpectedRows expectRows(const Expectation& expectation, const StepShape& shape);

}  // namespace sluice

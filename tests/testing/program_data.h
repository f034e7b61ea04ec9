// Random tensors for any program, and the errors of a run's results, compared with double precision.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/testing/layer_run.h"

namespace sluice {

enum class DataRouting : uint8_t {
  kUniform,
  kFewExperts,
  kMasked
};  // kFewExperts: half of the experts get no row

// All inputs and outputs of all ranks, with scales that keep intermediate tensors of order 1; `dims` is not
// set. Gradients that a run adds to start with numbers, other outputs with a pattern that no result has. The
// same arguments give the same bits.
LayerData makeProgramData(const TaskProgram& program, const std::vector<int64_t>& tokens, DataRouting routing,
                          uint32_t seed);

// Relative L2 error of each output of `entries` over all ranks; `before` is the data with which the run
// began. `roundStored`: the exact results are rounded wherever the program stores.
std::map<std::string, double> errorsOfProgram(const VerifiedProgram& program, const LayerData& before,
                                              const LayerData& after, const std::vector<std::string>& entries,
                                              bool roundStored);

}  // namespace sluice

// The rates of a device model file, for the cost model. Free function of a reading.
#pragma once

#include <optional>

#include "compiler/target/figures.h"
#include "runtime/cost/rates.h"

namespace sluice {

// The rates, if the file has any: then all of matrix, vector, memory, caches, link and task are required.
// They are the last fields of a file to be read: fails if it has others that nobody read.
std::optional<Rates> readRates(Figures& figures);

}  // namespace sluice

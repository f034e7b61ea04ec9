// RowMemory: the caller's function that returns where the rows of an output are to be written.
//
// Called once per step that writes them, when their number is known, by the thread that runs steps.
// `firstRows` has the first row of each expert of this rank, then the number of all rows. An error refuses
// the step at all ranks, before any rank sends; so does null, except for 0 rows (BoundTensor::rowsMayFail).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/base/expected.h"

namespace sluice {

using RowMemory = std::function<Expected<void*>(std::span<const int32_t> firstRows)>;

}  // namespace sluice

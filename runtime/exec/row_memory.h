// RowMemory: the caller's function that returns where the rows of an output are to be written.
//
// Called once per step that writes them, when their number is known, by the thread that runs steps. Null is
// an error, except for 0 rows.
#pragma once

#include <cstdint>
#include <functional>

namespace sluice {

using RowMemory = std::function<void*(int64_t rows)>;

}  // namespace sluice

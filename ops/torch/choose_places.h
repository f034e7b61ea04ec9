// The op sluice::choose_places.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice {

// choosePlaces() (runtime/routing/placement.h) for the rows [experts] (F64) that each expert is expected to
// get: the expert at each of the places (I32 [places]), which are dealt over groups of ranks. Throws for
// rows that are negative or not finite, and fewer places than experts.
at::Tensor choosePlacesFor(const at::Tensor& rows, int64_t places, int64_t groups);

}  // namespace sluice

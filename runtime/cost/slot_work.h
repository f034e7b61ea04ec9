// The amount of work that each task of a slot has. Value type and a free function of values.
#pragma once

#include <cstdint>

#include "runtime/routing/routing.h"

namespace sluice {

struct SlotWork {
  double rows = 0;   // or tokens
  double reuse = 1;  // consecutive tasks that read the same weight
};

// Returns the work of slot `index` of `space`, in which a slot has `slotSize` tokens if it is one of tokens.
SlotWork slotWork(const RoutingTables& tables, SpaceKind space, int64_t index, int32_t slotSize);

}  // namespace sluice

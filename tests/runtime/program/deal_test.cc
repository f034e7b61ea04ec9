#include "runtime/program/deal.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

TEST_CASE("every task of a window is dealt once, evenly, in order, and the deal goes on over windows") {
  for (int32_t cores : {1, 2, 3, 8})
    for (int32_t tiles : {1, 2, 5, 8})
      for (int32_t window : {1, 3, 16}) {
        const Deal deal = dealTasks(FamilyId{4}, window, tiles, cores);
        REQUIRE(deal.seats.size() == static_cast<size_t>(cores));
        REQUIRE(deal.rotation == window * tiles % cores);
        int32_t seen = 0;
        for (int32_t c = 0; c < cores; ++c) {
          int64_t last = -1;
          for (const TaskRecord& task : deal.seats[static_cast<size_t>(c)]) {
            const int64_t number = static_cast<int64_t>(task.slot) * tiles + task.tile;
            REQUIRE(task.family == FamilyId{4});
            REQUIRE(number % cores == c);
            REQUIRE(number > last);
            REQUIRE(task.tile < static_cast<uint32_t>(tiles));
            last = number;
            ++seen;
          }
        }
        REQUIRE(seen == window * tiles);
      }
}

}  // namespace
}  // namespace sluice

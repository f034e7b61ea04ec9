#include "ops/torch/saved_sets.h"

#include <catch2/catch.hpp>

namespace sluice {

TEST_CASE("the least free set is taken") {
  SavedSets sets;
  const HeldSet a = *sets.take(), b = *sets.take(), c = *sets.take();
  CHECK(a.set == 0);
  CHECK(b.set == 1);
  CHECK(c.set == 2);
  sets.release(b);
  sets.release(a);
  CHECK(sets.inUse() == 1);
  CHECK(sets.take()->set == 0);
  CHECK(sets.take()->set == 1);
  CHECK(sets.take()->set == 3);
  CHECK(sets.made() == 4);
}

TEST_CASE("a set that was released is not held, even when others hold it now") {
  SavedSets sets;
  const HeldSet first = *sets.take();
  CHECK(sets.isHeld(first));
  sets.release(first);
  CHECK(!sets.isHeld(first));
  const HeldSet second = *sets.take();
  CHECK(second.set == first.set);
  CHECK(!sets.isHeld(first));
  sets.release(first);  // too late: not theirs any more
  CHECK(sets.isHeld(second));
  CHECK(!sets.isHeld({second.set + 1, second.taken}));
  CHECK(!sets.isHeld({}));
}

TEST_CASE("there is an end to the sets of a layer") {
  SavedSets sets;
  for (uint32_t n = 0; n < kMaxSavedSets; ++n) REQUIRE(sets.take().ok());
  const auto none = sets.take();
  REQUIRE(!none.ok());
  CHECK(none.error().message.find("all 1024 sets") != std::string::npos);
  CHECK(sets.inUse() == 1024);
}

}  // namespace sluice

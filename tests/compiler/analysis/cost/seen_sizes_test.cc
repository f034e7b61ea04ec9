#include "compiler/analysis/cost/seen_sizes.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

using Catch::Matchers::Contains;

CutSizes slotsOf(int32_t rows, int32_t columns = 256, int32_t tokens = 32) {
  return {rows, tokens, {columns, 256, 256}};
}

void add(SeenSizes& seen, const CutSizes& sizes, double seconds, double busy) {
  LayerCost cost;
  cost.seconds = seconds;
  cost.busy = busy;
  seen.add(sizes, cost);
}

TEST_CASE("of equally fast sizes, those with the least work are preferred, and the reason is given") {
  SeenSizes seen;
  add(seen, slotsOf(16), 0.100, 0.060);
  add(seen, slotsOf(64), 0.100, 0.040);
  add(seen, slotsOf(32), 0.100, 0.050);
  CHECK(seen.fastest().sizes == slotsOf(16));
  CHECK(seen.preferred().sizes == slotsOf(64));
  CHECK(seen.whyNotFastest(slotsOf(64)) ==
        "as fast as slots of 16 rows and 32 tokens, tiles of 256 columns and of 256 x 256 within noise, with "
        "less work: 100.000 ms with 40.000 ms of work per core, not 100.000 ms with 60.000 ms");
  CHECK(seen.whyNotFastest(slotsOf(16)).empty());
}

TEST_CASE("less work is worth no more of the step than it saves, and never more than noise") {
  SeenSizes seen;
  add(seen, slotsOf(16), 1.000, 0.900);
  add(seen, slotsOf(32), 1.015, 0.890);
  CHECK(seen.preferred().sizes == slotsOf(16));
  add(seen, slotsOf(48), 1.015, 0.880);
  CHECK(seen.preferred().sizes == slotsOf(48));
  add(seen, slotsOf(64), 1.025, 0.100);
  CHECK(seen.preferred().sizes == slotsOf(48));
  CHECK(seen.whyNotFastest(slotsOf(64)).empty());
}

TEST_CASE("sizes are judged by the fastest, also if that is seen last") {
  SeenSizes seen;
  add(seen, slotsOf(16), 1.000, 0.500);
  add(seen, slotsOf(32), 1.010, 0.400);
  CHECK(seen.preferred().sizes == slotsOf(32));
  add(seen, slotsOf(48), 0.985, 0.600);
  CHECK(seen.preferred().sizes == slotsOf(16));
}

TEST_CASE("of equally fast sizes, those with wide tiles are preferred, if computing bounds the step") {
  SeenSizes seen;
  add(seen, slotsOf(16, 256), 1.000, 0.990);
  add(seen, slotsOf(16, 512), 1.010, 0.995);
  CHECK(seen.preferred().sizes == slotsOf(16, 512));
  CHECK(seen.whyNotFastest(slotsOf(16, 512)) ==
        "as fast as slots of 16 rows and 32 tokens, tiles of 256 columns and of 256 x 256 within noise, with "
        "wider tiles: 1010.000 ms, not 1000.000 ms");
  add(seen, slotsOf(32, 512), 1.010, 0.990);
  CHECK(seen.preferred().sizes == slotsOf(32, 512));
  add(seen, slotsOf(16, 1024), 1.025, 0.995);  // more than noise
  CHECK(seen.preferred().sizes == slotsOf(32, 512));
  add(seen, slotsOf(16, 1024), 1.015, 0.995);
  CHECK(seen.preferred().sizes == slotsOf(16, 1024));
  add(seen, slotsOf(16, 2048), 1.015, 0.996);  // not wider for its own sake
  CHECK(seen.preferred().sizes == slotsOf(16, 1024));
  add(seen, slotsOf(48, 256), 0.999, 0.900);  // the fastest: a link bounds its step
  CHECK(seen.preferred().sizes == slotsOf(48, 256));
}

TEST_CASE("candidates are of many slots, the preferred first, and the fastest is among them") {
  SeenSizes seen;
  add(seen, slotsOf(16, 64, 4), 1.000, 0.900);
  for (int32_t rows : {32, 48, 64})
    for (int32_t columns : {128, 256, 512}) add(seen, slotsOf(rows, columns), 1.001, 0.5 - rows * 1e-3);
  add(seen, slotsOf(128), 1.030, 0.1);
  add(seen, slotsOf(256), 1.100, 0.1);
  const std::vector<CutSizes> sizes = seen.candidates(6);
  CHECK(sizes == std::vector<CutSizes>{slotsOf(64, 128), slotsOf(48, 128), slotsOf(32, 128),
                                       slotsOf(16, 64, 32), slotsOf(128), slotsOf(16, 64, 4)});
}

TEST_CASE("a size is explained by the best of the others") {
  SeenSizes seen;
  add(seen, slotsOf(16), 0.100, 0.060);
  const auto rows = [](const CutSizes& sizes) { return int64_t{sizes.slotRows}; };
  const auto text = [](const CutSizes& sizes) { return std::to_string(sizes.slotRows) + " rows"; };
  CHECK(seen.why(slotsOf(16), rows, text) == "100.000 ms; nothing else to choose");
  add(seen, slotsOf(32), 0.300, 0.060);
  add(seen, slotsOf(48), 0.200, 0.060);
  CHECK(seen.why(slotsOf(16), rows, text) == "100.000 ms; next best 48 rows, 200.000 ms");
}

}  // namespace
}  // namespace sluice

// Which way a product takes, by what its Unit can do.
#include "ops/cpu/way.h"

#include <catch2/catch.hpp>

namespace sluice::ops {
namespace {

struct Panels {
  static constexpr int32_t kRowsKc = 32;
};
struct Rows {
  static int32_t rowsOfBInPlace(int32_t m, int64_t ldb) { return ldb == 4096 && m > 10 ? 0 : 8; }
};
struct InStrips : Rows {
  struct Each {
    static bool suit() { return true; }
  };
  using Strips = Each;
};
struct Columns : Rows {
  struct Square {};
  static constexpr int32_t kNr = 64, kKUnit = 2;
  static bool readsInPlace(int32_t rows) { return rows <= 16 || rows > 60; }
  static void multiplyInPlace() {}
};
struct Decodes : Rows {
  template <class B>
  struct FewCodes {};
  template <class B>
  struct CodePanels {};
};

struct Shape {
  int32_t rows;
  bool transposed = false;
  int32_t k = 512;
  int64_t ldb = 512;
  const void* packed = nullptr;
};

GmmArgs argsOf(const Shape& shape) {
  GmmArgs args = {};
  args.rows = shape.rows;
  args.n = 64;
  args.k = shape.k;
  args.b.ld = shape.ldb;
  args.transposeB = shape.transposed;
  args.packedB = shape.packed;
  return args;
}

template <class Unit>
Way way(const Shape& shape) {
  return wayOfNumbers<Unit, Unit>(argsOf(shape));
}

TEST_CASE("many rows, and weights that were packed before, take panels") {
  const int packed = 0;
  for (const bool transposed : {false, true}) {
    CHECK(way<Panels>({.rows = 17, .transposed = transposed}) == Way::kPanels);
    CHECK(way<InStrips>({.rows = 17, .transposed = transposed}) == Way::kPanels);
    CHECK(way<Columns>({.rows = 65, .transposed = transposed}) == Way::kPanels);
    CHECK(way<Columns>({.rows = 1, .transposed = transposed, .packed = &packed}) == Way::kPanels);
  }
}

TEST_CASE("few rows read a weight in place where their unit can") {
  CHECK(way<Panels>({.rows = 16}) == Way::kFewRuns);
  CHECK(way<Rows>({.rows = 16}) == Way::kRows);
  CHECK(way<Rows>({.rows = 10, .ldb = 4096}) == Way::kRows);
  CHECK(way<Rows>({.rows = 11, .ldb = 4096}) == Way::kPanels);
  CHECK(way<InStrips>({.rows = 16}) == Way::kStrips);
}

TEST_CASE("a transposed weight is read in place where the unit can") {
  CHECK(way<Rows>({.rows = 16, .transposed = true}) == Way::kFewPanels);
  CHECK(way<Columns>({.rows = 8, .transposed = true}) == Way::kSquares);
  CHECK(way<Columns>({.rows = 9, .transposed = true}) == Way::kTransposed);
  CHECK(way<Columns>({.rows = 64, .transposed = true}) == Way::kTransposed);
  CHECK(way<Columns>({.rows = 17, .transposed = true}) == Way::kPanels);  // it does not suit
  CHECK(way<Columns>({.rows = 9, .transposed = true, .k = 511}) == Way::kFewPanels);
  CHECK(way<Columns>({.rows = 9, .transposed = true, .k = 0}) == Way::kFewPanels);
}

TEST_CASE("numbers that change as they are packed take panels") {
  CHECK(wayOfRounded(argsOf({.rows = 16})) == Way::kFewPanels);
  CHECK(wayOfRounded(argsOf({.rows = 17})) == Way::kPanels);
  CHECK(wayOfCodes<InStrips, int8_t>(argsOf({.rows = 1})) == Way::kFewPanels);
  CHECK(wayOfCodes<Decodes, int8_t>(argsOf({.rows = 8})) == Way::kFewCodes);
  CHECK(wayOfCodes<Decodes, int8_t>(argsOf({.rows = 9})) == Way::kWidePanels);
  CHECK(wayOfCodes<Decodes, int8_t>(argsOf({.rows = 8, .k = 0})) == Way::kWidePanels);
}

}  // namespace
}  // namespace sluice::ops

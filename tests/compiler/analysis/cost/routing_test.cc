#include "compiler/analysis/cost/routing.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

double sumOf(const ExpectedRows& rows) {
  double sum = 0;
  for (const ExpertGroup& group : rows.groups) sum += group.rows * group.experts;
  return sum;
}

double countExperts(const ExpectedRows& rows) {
  double sum = 0;
  for (const ExpertGroup& group : rows.groups) sum += group.experts;
  return sum;
}

TEST_CASE("uniform routing gives every expert the same share, spread by chance") {
  const ExpectedRows rows = expectRows({}, {.mesh = {4}, .experts = 64, .topK = 8, .tokens = 512});
  CHECK(rows.rows == Approx(4096));
  CHECK(sumOf(rows) == Approx(4096));
  CHECK(countExperts(rows) == Approx(16));
  REQUIRE(rows.groups.size() == 3);
  CHECK(rows.groups[0].rows > 256);
  CHECK(rows.groups[1].rows == Approx(256));
  CHECK(rows.groups[2].rows < 256);
}

TEST_CASE("skewed routing is that of the rank with most rows, and no expert has more rows than tokens") {
  Expectation zipf;
  zipf.exponent = 2;
  const StepShape shape{.mesh = {2}, .experts = 8, .topK = 2, .tokens = 100};
  const ExpectedRows rows = expectRows(zipf, shape);
  CHECK(rows.groups.front().rows == Approx(200));
  CHECK(rows.rows > 200);
  CHECK(rows.rows < 400);
  CHECK(sumOf(rows) == Approx(rows.rows));
  Expectation late;
  late.shares = {0, 0, 0, 0, 0, 0, 1, 3};
  CHECK(expectRows(late, shape).rows == Approx(400));
}

TEST_CASE("of ranks that own different numbers of experts, one with more is expected to have most rows") {
  const StepShape shape{.mesh = {4}, .experts = 7, .topK = 2, .tokens = 70};
  const ExpectedRows even = expectRows({}, shape);
  CHECK(even.experts == 2);
  CHECK(countExperts(even) == Approx(2));
  CHECK(even.rows == Approx(2 * 80));
  Expectation last;
  last.shares = {1, 0, 1, 0, 1, 0, 3};
  const ExpectedRows skewed = expectRows(last, shape);
  CHECK(skewed.experts == 1);
  CHECK(skewed.rows == Approx(280));
  const ExpectedRows few = expectRows({}, {.mesh = {4}, .experts = 3, .topK = 2, .tokens = 30});
  CHECK(few.experts == 1);
  CHECK(few.rows == Approx(80));
  CHECK(expectRows({}, {.mesh = {4}, .experts = 8, .topK = 2, .tokens = 70}).experts == 2);
}

TEST_CASE("a token that chooses every expert leaves nothing to chance") {
  const ExpectedRows rows = expectRows({}, {.mesh = {1}, .experts = 4, .topK = 4, .tokens = 10});
  REQUIRE(rows.groups.size() == 1);
  CHECK(rows.groups[0].rows == Approx(10));
}

TEST_CASE("no tokens are no rows, and many experts are few groups") {
  CHECK(expectRows({}, {.mesh = {1}, .experts = 4, .topK = 2, .tokens = 0}).rows == 0);
  Expectation zipf;
  zipf.exponent = 1;
  const ExpectedRows rows = expectRows(zipf, {.mesh = {1}, .experts = 65536, .topK = 8, .tokens = 1 << 20});
  CHECK(rows.groups.size() < 100);
  CHECK(sumOf(rows) == Approx(8.0 * (1 << 20)));
}

}  // namespace
}  // namespace sluice

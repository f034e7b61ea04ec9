#include "tools/cli/run_job.h"

#include <catch2/catch.hpp>

namespace sluice::tools {
namespace {

RankFigures someFigures() {
  RankFigures figures;
  figures.tokens = 37;
  figures.stats = {{0.1, 0.05, 0.5, 12, 74}, {0.2, 0.1, 0.6, 12, 74}, {1, 2, 3, 4, 5}};
  figures.packed = {4096, 3, 1};
  figures.pages.residentBytes = 1 << 21;
  figures.pages.refusal = "there are none";
  return figures;
}

TEST_CASE("figures are at the other rank what they were") {
  const Expected<RankFigures> figures = decodeFigures(encodeFigures(someFigures()));
  REQUIRE(figures.ok());
  CHECK(figures->tokens == 37);
  REQUIRE(figures->stats.size() == 3);
  CHECK(figures->stats[1].runSeconds == 0.6);
  CHECK(figures->stats[2].rows == 5);
  CHECK(figures->packed.withoutRoom == 1);
  CHECK(figures->pages.residentBytes == 1 << 21);
  CHECK(figures->pages.refusal == "there are none");
}

TEST_CASE("a trace is at the other rank what it was") {
  Trace trace;
  trace.dropped = 9;
  trace.spans.resize(3);
  trace.spans[2].begin = 17;
  trace.spans[2].kind = SpanKind::kWait;
  const Expected<Trace> other = decodeTrace(encodeTrace(trace));
  REQUIRE(other.ok());
  CHECK(other->dropped == 9);
  REQUIRE(other->spans.size() == 3);
  CHECK(other->spans[2].begin == 17);
  CHECK(other->spans[2].kind == SpanKind::kWait);
}

TEST_CASE("figures and traces that are cut, or too long, are errors") {
  const std::string figures = encodeFigures(someFigures());
  for (size_t length = 0; length < figures.size(); ++length)
    CHECK_FALSE(decodeFigures(figures.substr(0, length)).ok());
  CHECK_FALSE(decodeFigures(figures + "x").ok());
  const std::string trace = encodeTrace({});
  CHECK_FALSE(decodeTrace(trace.substr(1)).ok());
  CHECK_FALSE(decodeTrace(std::string(trace.size(), '\xff')).ok());
}

}  // namespace
}  // namespace sluice::tools

#include <catch2/catch.hpp>

#include "tools/bench/report.h"

namespace sluice::tools {
namespace {

// A pass of 1 s that reaches `share` of a peak of 1 FLOP/s.
PassSamples passOf(Pass pass, double share) {
  PassSamples samples;
  samples.pass = pass;
  samples.work.flops = share;
  samples.sluice.threads = 2;
  samples.sluice.all = {{1, 1}};
  return samples;
}

CaseSamples caseOf(const char* name, double forward, double backward) {
  CaseSamples c;
  c.name = name;
  c.rows = *rowsCase("c");
  c.probesOfAll = {{1, 1, 1}};
  c.probesOfOne = {{1, 1, 1}};
  c.passes = {passOf(Pass::kForward, forward), passOf(Pass::kBackward, backward)};
  return c;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("a picture has a bar per case and pass, as long as its share") {
  const std::string svg = drawPlot({caseOf("a", 0.5, 1), caseOf("b", 0.25, 0)}, {}, {"a cpu", "avx2", ""});
  CHECK(count(svg, "class=\"sluice\"") == 4);
  CHECK(count(svg, "class=\"peer\"") == 0);
  for (const char* const width : {"280", "560", "140", "0"})
    CHECK(count(svg, "width=\"" + std::string(width) + "\" height=\"16\"") == 1);
  CHECK(svg.find(">50%</text>") != std::string::npos);
  CHECK(svg.find("Share of the register peak: a cpu") != std::string::npos);
}

TEST_CASE("a peer has bars where it was measured, and the scale grows with shares above the peak") {
  CaseSamples c = caseOf("a", 0.75, 0.5);
  c.passes[0].peers = {{"onednn", "oneDNN 1", "packed weights", c.passes[0].sluice, 0}};
  c.passes[0].peers[0].samples.all = {{0.5, 0.5}};  // half the time: 150%
  const std::string svg = drawPlot({c}, {}, {"a cpu", "avx2", "oneDNN 1"});
  CHECK(count(svg, "class=\"peer\"") == 1);
  CHECK(count(svg, ">onednn</text>") == 1);
  CHECK(svg.find("oneDNN 1") != std::string::npos);
  CHECK(svg.find(">150%</text>") != std::string::npos);
  CHECK(svg.find(">160%</text>") != std::string::npos);
  CHECK(count(svg, "width=\"525\" height=\"16\"") == 1);  // 150 of 160
}

TEST_CASE("text of a picture is escaped") {
  const std::string svg = drawPlot({caseOf("<a> & \"b\"\x1b", 1, 1)}, {}, {"x < y & z\xff", "avx2", "p<q>"});
  CHECK(svg.find("&lt;a&gt; &amp; \"b\"\\x1b") != std::string::npos);
  CHECK(svg.find("x &lt; y &amp; z\\xff") != std::string::npos);
  CHECK(svg.find("p&lt;q&gt;") != std::string::npos);
  CHECK(svg.find('\x1b') == std::string::npos);
}

}  // namespace
}  // namespace sluice::tools

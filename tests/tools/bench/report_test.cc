#include "tools/bench/report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace sluice::tools {
namespace {

Samples samplesOf(std::vector<double> seconds, int threads) {
  Samples samples;
  samples.threads = threads;
  for (double each : seconds) samples.all.push_back({each, each * threads / 2});
  return samples;
}

// Forward of case c in 10 ms by two threads of 1 TFLOP/s, 10 GB/s read and 20 GB/s written.
CaseSamples measuredCase() {
  CaseSamples c;
  c.name = "c";
  c.rows = *rowsCase("c");
  for (double factor : {0.5, 1.0, 3.0}) {
    c.probesOfAll.push_back({factor * 1e12, factor * 10e9, factor * 20e9});
    c.probesOfOne.push_back({factor * 0.5e12, factor * 6e9, factor * 12e9});
  }
  PassSamples pass;
  pass.work = {4e9, 20e6, 30e6};
  pass.sluice = samplesOf({0.012, 0.010, 0.008}, 2);
  pass.single = samplesOf({0.018, 0.018, 0.018}, 1);
  pass.peers = {{"onednn", "oneDNN 1", "packed weights", samplesOf({0.020, 0.025, 0.015}, 2), 0.003},
                {"openblas", "OpenBLAS 2", "plain weights", samplesOf({0.030, 0.030, 0.030}, 2), 0.002}};
  c.passes.push_back(pass);
  return c;
}

TEST_CASE("figures are those of the medians, of Sluice, of peers and of the probes") {
  const CaseSamples c = measuredCase();
  const PassFigures f = computeFigures(c, c.passes[0], ClockKind::kWall);
  CHECK(f.median == Approx(0.010));
  CHECK(f.least == Approx(0.008));
  CHECK(f.most == Approx(0.012));
  CHECK(f.flops == Approx(4e11));
  CHECK(f.shareOfPeak == Approx(0.4));
  CHECK(f.shareOfRead == Approx(0.2));
  REQUIRE(f.peers.size() == 2);
  CHECK(f.peers[0].median == Approx(0.020));
  CHECK(f.peers[0].overSluice == Approx(2.0));
  CHECK(f.peers[1].overSluice == Approx(3.0));
  CHECK(f.gain == Approx(1.8));
  CHECK(f.gainOfProbe == Approx(2.0));
}

TEST_CASE("the bound is the larger one of the products and of the bytes read and written") {
  CaseSamples c = measuredCase();
  CHECK(computeFigures(c, c.passes[0], ClockKind::kWall).bound == Approx(0.004));
  c.passes[0].work.readBytes = 100e6;
  CHECK(computeFigures(c, c.passes[0], ClockKind::kWall).bound == Approx(0.010 + 0.0015));
}

TEST_CASE("processor time counts by thread, so that other work of the machine does not") {
  const CaseSamples c = measuredCase();
  CHECK(computeFigures(c, c.passes[0], ClockKind::kCpu).median == Approx(0.005));
}

TEST_CASE("d over a is told where both were measuredCase") {
  CaseSamples a = measuredCase(), d = measuredCase();
  a.name = "a";
  d.name = "d";
  for (Duration& duration : d.passes[0].sluice.all) duration.wall *= 1.1;
  CHECK(skewText({a, d}, ClockKind::kWall) == "d takes 1.10 times as long as a, forward\n");
  CHECK(skewText({a}, ClockKind::kWall).empty());
}

TEST_CASE("text and table name each peer and its time relative to Sluice's") {
  BenchOptions options;
  options.peers = {"onednn", "openblas"};
  const std::string text = formatText(measuredCase(), options, {});
  CHECK(
      text.find("oneDNN 1 takes 20.000 ms (packed weights), 2.00 times as long; results differ by 3.0e-03") !=
      std::string::npos);
  CHECK(text.find("OpenBLAS 2 takes 30.000 ms (plain weights), 3.00 times as long") != std::string::npos);
  CHECK(markdownHeader(options).find("| onednn ms | onednn / Sluice | openblas ms | openblas / Sluice |") !=
        std::string::npos);
  CHECK(formatMarkdown(measuredCase(), options).find("| 20.00 | 2.00 | 30.00 | 3.00 |") != std::string::npos);
}

TEST_CASE("the JSON has every repetition of everything") {
  const auto root =
      nlohmann::json::parse(formatJson({measuredCase()}, {}, {"a cpu", "avx512", "oneDNN 1, OpenBLAS 2"}));
  CHECK(root["cpu"] == "a cpu");
  const auto& pass = root["cases"][0]["passes"][0];
  CHECK(pass["sluice"]["wall_seconds"] == std::vector<double>{0.012, 0.010, 0.008});
  CHECK(pass["peers"][0]["name"] == "onednn");
  CHECK(pass["peers"][1]["version"] == "OpenBLAS 2");
  CHECK(pass["peers"][1]["mode"] == "plain weights");
  CHECK(pass["peers"][1]["wall_seconds"].size() == 3);
  CHECK(pass["one_thread"]["threads"] == 1);
  CHECK(root["cases"][0]["probes_all_threads"]["flops"].size() == 3);
}

}  // namespace
}  // namespace sluice::tools

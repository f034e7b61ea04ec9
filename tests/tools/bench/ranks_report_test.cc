#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tools/bench/report.h"

namespace sluice::tools {
namespace {

EntryOverlap entryOf(double all, double communication, double compute) {
  EntrySample sample;
  sample.wall = {all, communication, compute};
  sample.cpu = {2 * all, communication, compute};
  sample.rows = 256;
  sample.traffic = {4, 1'000'000, 8};
  sample.stats = {5, 1'000'000, 9, 6, 7};
  return {"forward", {sample, sample, sample}};
}

RanksReport measured() {
  const LayerCase two = tinyLayer(2);
  const LayerCase four = *sharedAmong(two, 4);
  return {"shm", {{two, 1, {entryOf(0.010, 0.001, 0.009)}}, {four, 1, {entryOf(0.012, 0.002, 0.009)}}}, {}};
}

TEST_CASE("numbers of ranks share the tokens and experts of the first") {
  const LayerCase two = tinyLayer(2);
  const auto eight = sharedAmong(two, 8);
  REQUIRE(eight.ok());
  CHECK(eight->tokens * 8 == two.tokens * 2);
  CHECK(eight->experts == two.experts);
  CHECK(eight->ranks == 8);
  CHECK(sharedAmong(two, 3).error().message == "3 ranks cannot share 128 tokens evenly");
  CHECK(sharedAmong(two, 32).error().message == "32 ranks cannot share 16 experts");
}

TEST_CASE("each number of ranks is told beside the first") {
  const RanksReport report = measured();
  CHECK(overFirst(report, 0, 0, ClockKind::kWall) == Approx(1));
  CHECK(overFirst(report, 1, 0, ClockKind::kWall) == Approx(1.2));
  const std::string text = formatText(report, {}, {"a cpu", "avx512", ""});
  CHECK(text.find("128 tokens in all") != std::string::npos);
  CHECK(text.find("over EP 2") != std::string::npos);
  CHECK(text.find("1.20\n") != std::string::npos);
}

TEST_CASE("each linear layer is compared with itself on the first number of ranks") {
  const LinearSize size{64, 48, 96};
  const auto two = *linearCases(size, 2, false), four = *linearCases(size, 4, false);
  const RanksReport report{"shm",
                           {{two[0], 1, {entryOf(0.010, 0.001, 0.009)}},
                            {four[0], 1, {entryOf(0.012, 0.002, 0.009)}},
                            {two[1], 1, {entryOf(0.020, 0.001, 0.009)}},
                            {four[1], 1, {entryOf(0.030, 0.002, 0.009)}}},
                           {}};
  CHECK(overFirst(report, 1, 0, ClockKind::kWall) == Approx(1.2));
  CHECK(overFirst(report, 2, 0, ClockKind::kWall) == Approx(1));
  CHECK(overFirst(report, 3, 0, ClockKind::kWall) == Approx(1.5));
  const std::string text = formatText(report, {}, {"a cpu", "avx512", ""});
  CHECK(text.find("column parallel, 48 -> 96, 64 tokens in all, each at one rank\n") == 0);
  CHECK(text.find("\nrow parallel, 48 -> 96, 64 tokens in all, each at one rank\n") != std::string::npos);
  CHECK(text.find("over TP 2") != std::string::npos);
  CHECK(formatMarkdown(report, {}).find("| row parallel | shm | 4 | forward | 30.000 |") !=
        std::string::npos);
  const auto root = nlohmann::json::parse(formatJson(report, {}, {"a cpu", "avx512", ""}));
  CHECK(root["cases"][3]["layer"] == "row parallel");
  CHECK(root["cases"][3]["tp"] == 4);
  CHECK(root["cases"][3]["tokens_of_rank"] == 16);
  CHECK(root["cases"][3]["passes"][0]["over_first"] == Approx(1.5));
}

TEST_CASE("units that share processor time are no more than the threads of all ranks") {
  RanksSamples samples{tinyLayer(1), 1, {}};
  CHECK(countCpuUnits(samples, ClockKind::kCpu) == 1);
  CHECK(countCpuUnits(samples, ClockKind::kWall) == 0);
}

TEST_CASE("the table has a row for each number of ranks, the JSON every sample") {
  RanksReport report = measured();
  const std::string table = formatMarkdown(report, {});
  CHECK(table.find("| shm | 2 | forward | 10.000 | 1.000 | 9.000 | 0.90 | 256 | 1.00 | 12 | 5 | 9 | 7 | 6 | "
                   "20.000 |") != std::string::npos);
  CHECK(table.find("| shm | 4 | forward | 12.000 |") != std::string::npos);
  report.link.emplace();
  const auto root = nlohmann::json::parse(formatJson(report, {}, {"a cpu", "avx512", ""}));
  CHECK(root["transport"] == "shm");
  CHECK(root["cases"][1]["ep"] == 4);
  CHECK(root["cases"][1]["passes"][0]["over_first"] == Approx(1.2));
  CHECK(root["cases"][0]["passes"][0]["wall_seconds"]["all"].size() == 3);
  CHECK(root["link"]["puts"].size() == 8);
}

}  // namespace
}  // namespace sluice::tools

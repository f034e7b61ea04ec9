#include "tools/bench/cases.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

namespace sluice::tools {
namespace {

int64_t sum(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

TEST_CASE("the cases have the operations that they are known by, backward twice as many") {
  const std::pair<const char*, double> gigaFlops[] = {{"a", 38.65}, {"b", 180.39}, {"c", 3.22},
                                                      {"d", 38.65}, {"e", 0.604},  {"f", 309.24}};
  for (const auto& [name, expected] : gigaFlops) {
    CAPTURE(name);
    const auto c = rowsCase(name);
    REQUIRE(c);
    CHECK(countWork(*c, Pass::kForward).flops * 1e-9 == Approx(expected).epsilon(0.001));
    CHECK(countWork(*c, Pass::kBackward).flops == 2 * countWork(*c, Pass::kForward).flops);
  }
  CHECK(!rowsCase("g"));
}

TEST_CASE("a case for a GPU is one of rows, or a layer of one rank with the sizes that it is known by") {
  for (const std::string& name : gpuCaseNames()) {
    CAPTURE(name);
    const auto c = gpuCase(name);
    REQUIRE(c);
    CHECK(c->name == name);
    CHECK(c->layer.has_value() == name.starts_with('n'));
    if (c->layer) {
      CHECK(c->layer->inter == std::stoi(name.substr(1)));
      CHECK(c->layer->hidden == 4096);
      CHECK(c->layer->experts * c->layer->topK == 256);
      CHECK(c->layer->tokens == 32768);
      CHECK(c->layer->ranks == 1);
    }
  }
  CHECK(gpuCase("b")->rows.rows == rowsCase("b")->rows);
  const RowsCase dense = gpuCase("dense")->rows;
  CHECK((dense.hidden == 8192 && 2 * dense.inter == 8192 && dense.rows == std::vector<int64_t>{8192}));
  CHECK(!gpuCase("n4096"));
  CHECK(!gpuCase("layer"));
}

TEST_CASE("the bytes of a pass count each matrix once, and no weight of an expert without rows") {
  const Work even = countWork(*rowsCase("a"), Pass::kForward),
             skewed = countWork(*rowsCase("d"), Pass::kForward);
  CHECK(even.readBytes * 1e-6 == Approx(167.77).epsilon(0.001));
  CHECK(even.writtenBytes * 1e-6 == Approx(29.36).epsilon(0.001));
  CHECK(skewed.readBytes == Approx(even.readBytes - 2 * 2.0 * 3 * 2048 * 768));
  // fp32 gradients, twice as many bytes as weights in bf16, and zeros for an expert without rows
  const Work back = countWork(*rowsCase("d"), Pass::kBackward);
  CHECK(back.writtenBytes == Approx(16 * 4.0 * 3 * 2048 * 768 + 2.0 * 4096 * 2048));
  // without weight gradients: dy, gate_up and codes of 8 bits are read, dx is written
  const Work ofRows = countWork(*rowsCase("a"), Pass::kBackward, 1, false);
  CHECK(ofRows.flops == countWork(*rowsCase("a"), Pass::kForward).flops);
  CHECK(ofRows.readBytes == Approx(16.0 * 3 * 2048 * 768 + 2.0 * 4096 * 2048 + 4.0 * 4096 * 768));
  CHECK(ofRows.writtenBytes == Approx(2.0 * 4096 * 2048));
}

TEST_CASE("rows that are spread add up, and no expert has more than there are tokens") {
  for (double exponent : {0.0, 0.5, 1.2, 3.0, 10.0})
    for (int64_t topK : {1, 2, 8})
      for (int64_t tokens : {0, 1, 7, 1000}) {
        CAPTURE(exponent, topK, tokens);
        const std::vector<int64_t> rows = spreadRows(tokens, topK, 16, exponent);
        CHECK(sum(rows) == tokens * topK);
        CHECK(*std::min_element(rows.begin(), rows.end()) >= 0);
        CHECK(*std::max_element(rows.begin(), rows.end()) <= tokens);
      }
  const std::vector<int64_t> even = spreadRows(1000, 8, 16, 0);
  CHECK(std::all_of(even.begin(), even.end(), [](int64_t rows) { return rows == 500; }));
}

TEST_CASE("a rank of a model has its share of experts, and no rank has more rows") {
  const auto one = modelRows("deepseek-v3", 64, 64, "zipf:1.2");
  REQUIRE(one);
  CHECK(one->experts() == 4);
  CHECK(one->hidden == 7168);
  CHECK(one->allRows() >= 64 * 8);                                   // the mean of all ranks
  const auto uneven = modelRows("mixtral-8x7b", 100, 3, "uniform");  // 3, 3 and 2 experts
  REQUIRE(uneven);
  CHECK(uneven->experts() == 3);
  CHECK(uneven->allRows() == 225);
  const auto all = modelRows("mixtral-8x7b", 100, 1, "uniform");
  REQUIRE(all);
  CHECK(all->allRows() == 200);
}

TEST_CASE("ranks share the tokens and the columns of linear layers, or have all tokens") {
  const auto own = linearCases({64, 48, 96}, 4, false), same = linearCases({64, 48, 96}, 3, true);
  REQUIRE(own);
  REQUIRE(same);
  CHECK(own->at(0).kind == LayerKind::kColumnParallel);
  CHECK(own->at(1).kind == LayerKind::kRowParallel);
  for (const LayerCase& c : *own) {
    CHECK(c.tokens == 16);
    CHECK(c.allTokens() == 64);
  }
  CHECK(same->at(0).tokens == 64);
  CHECK(same->at(0).allTokens() == 64);
  CHECK(linearCases({64, 48, 96}, 3, false).error().message == "3 ranks cannot share 64 tokens evenly");
  CHECK(linearCases({64, 48, 97}, 4, false).error().message ==
        "4 ranks cannot share 97 columns of the output evenly");
  CHECK(linearCases({64, 46, 96}, 4, false).error().message ==
        "4 ranks cannot share 46 columns of the input evenly");
}

TEST_CASE("a model, a skew or a number of ranks that cannot be is refused with what was expected") {
  CHECK(modelRows("gpt", 1, 1, "uniform").error().message ==
        "found model 'gpt', expected one of deepseek-v3, qwen3-235b, qwen3-30b, mixtral-8x7b");
  CHECK(modelRows("mixtral-8x7b", 1, 9, "uniform").error().message ==
        "9 ranks cannot share the 8 experts of mixtral-8x7b, expected 1 to 8");
  for (const char* skew : {"zipf", "zipf:", "zipf:x", "zipf:-1", "zipf:11", "zipf:1x", "onehot"})
    CHECK_FALSE(modelLayer("qwen3-30b", 1, 1, skew).ok());
}

}  // namespace
}  // namespace sluice::tools

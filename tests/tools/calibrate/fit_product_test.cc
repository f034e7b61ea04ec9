#include "tools/calibrate/fit_product.h"

#include <catch2/catch.hpp>
#include <vector>

namespace sluice::tools {
namespace {

std::vector<TimedProduct> timed(const ProductRate& rate, double noise) {
  std::vector<TimedProduct> products;
  double sign = 1;
  for (double m : {16, 64, 192, 256})
    for (double n : {64, 128, 512})
      for (double k : {128, 1024}) {
        const double passes = m > 192 ? 2 : 1;
        const double seconds =
            2 / rate.flops *
            (m * n * k + rate.halfRows * n * k * passes + rate.halfColumns * m * k + rate.halfSum * m * n);
        products.push_back({m, n, k, passes, seconds * (1 + noise * sign)});
        sign = -sign;
      }
  return products;
}

TEST_CASE("figures are found again in the times they give") {
  const ProductRate rate{.flops = 2e11, .halfRows = 6, .halfColumns = 5, .halfSum = 13};
  const ProductRate fit = fitProduct(timed(rate, 0));
  CHECK(fit.flops == Approx(rate.flops));
  CHECK(fit.halfRows == Approx(rate.halfRows));
  CHECK(fit.halfColumns == Approx(rate.halfColumns));
  CHECK(fit.halfSum == Approx(rate.halfSum));
  CHECK(worstError(fit, timed(rate, 0)) < 1e-6);
}

TEST_CASE("noise moves the figures by little, and the error says how much is left") {
  const ProductRate rate{.flops = 2e11, .halfRows = 6, .halfColumns = 5, .halfSum = 13};
  const ProductRate fit = fitProduct(timed(rate, 0.05));
  CHECK(fit.flops == Approx(rate.flops).epsilon(0.1));
  CHECK(worstError(fit, timed(rate, 0.05)) < 0.1);
}

TEST_CASE("no figure is negative: what would be is left out") {
  const ProductRate fit =
      fitProduct(timed({.flops = 2e11, .halfRows = 6, .halfColumns = 5, .halfSum = -5}, 0));
  CHECK(fit.halfSum == 0);
  CHECK(fit.halfRows >= 0);
  CHECK(fit.halfColumns >= 0);
  CHECK(fit.flops > 0);
}

}  // namespace
}  // namespace sluice::tools

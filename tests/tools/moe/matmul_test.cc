#include "tools/moe/matmul.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "tools/moe/random.h"

namespace sluice::tools {
namespace {

struct Shape {
  int64_t m, n, k;
};

TEST_CASE("products of any size and orientation are those of the plain loops") {
  const Shape shapes[] = {{1, 1, 1}, {5, 7, 3}, {6, 8, 256}, {97, 257, 300}, {13, 520, 1}, {200, 9, 513}};
  Random random(1, 0);
  for (const Shape& s : shapes)
    for (const bool transposeA : {false, true})
      for (const bool transposeB : {false, true})
        for (const bool accumulate : {false, true}) {
          INFO(s.m << " x " << s.n << " x " << s.k << " " << transposeA << transposeB << accumulate);
          std::vector<double> a(static_cast<size_t>(s.m * s.k)), c(static_cast<size_t>(s.m * (s.n + 3)), 0.5);
          std::vector<double> b(static_cast<size_t>(s.k * s.n));
          for (double& v : a) v = random.normal();
          for (double& v : b) v = random.normal();
          const MatrixView va{a.data(), transposeA ? 1 : s.k, transposeA ? s.m : 1};
          const MatrixView vb{b.data(), transposeB ? 1 : s.n, transposeB ? s.k : 1};
          matmul({va, vb, c.data(), s.n + 3, s.m, s.n, s.k, accumulate}, 2);
          double worst = 0;
          for (int64_t i = 0; i < s.m; ++i)
            for (int64_t j = 0; j < s.n + 3; ++j) {
              double sum = accumulate || j >= s.n ? 0.5 : 0;
              for (int64_t k = 0; k < s.k && j < s.n; ++k)
                sum += a[static_cast<size_t>(i * va.rowStride + k * va.colStride)] *
                       b[static_cast<size_t>(k * vb.rowStride + j * vb.colStride)];
              worst = std::max(worst, std::abs(sum - c[static_cast<size_t>(i * (s.n + 3) + j)]));
            }
          CHECK(worst < 1e-11);
        }
}

TEST_CASE("a product over nothing is zero, and adds nothing") {
  std::vector<double> c(4, 3.0);
  matmul({{}, {}, c.data(), 2, 2, 2, 0, true}, 2);
  CHECK(c == std::vector<double>(4, 3.0));
  matmul({{}, {}, c.data(), 2, 2, 2, 0, false}, 2);
  CHECK(c == std::vector<double>(4, 0.0));
  matmul({{}, {}, nullptr, 2, 0, 2, 5, false}, 2);
}

TEST_CASE("the number of threads does not change a bit") {
  const int64_t m = 150, n = 300, k = 270;
  std::vector<double> a(m * k), b(k * n);
  Random random(3, 0);
  for (double& v : a) v = random.normal();
  for (double& v : b) v = random.normal();
  std::vector<double> one(m * n), four(m * n);
  matmul({{a.data(), k, 1}, {b.data(), n, 1}, one.data(), n, m, n, k, false}, 1);
  matmul({{a.data(), k, 1}, {b.data(), n, 1}, four.data(), n, m, n, k, false}, 4);
  CHECK(one == four);
}

TEST_CASE("a parallel loop visits every index once") {
  std::vector<std::atomic<int>> visits(1001);
  parallelFor(3, 1001, 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) visits[static_cast<size_t>(i)].fetch_add(1);
  });
  for (const std::atomic<int>& visit : visits) CHECK(visit.load() == 1);
  parallelFor(3, 0, 10, [&](int64_t, int64_t) { FAIL("there is nothing to visit"); });
}

}  // namespace
}  // namespace sluice::tools

// Weights packed once: gmm gives the same bits with them as without, on every instruction set.
#include <catch2/catch.hpp>
#include <initializer_list>

#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

struct Case {
  int32_t n, k;
  bool transposed;
  Bf16Matrix b;
  Case(Random& random, int32_t columns, int32_t length, bool transposeB)
      : n(columns),
        k(length),
        transposed(transposeB),
        b(transposeB ? randomInput(random, n, k, k + 3) : randomInput(random, k, n, n + 3)) {}

  // Exactly as long as promised, so that the address sanitizer finds reads and writes after its end.
  void pack(const Implementation& by, Scratch& packed) const {
    by.kernels.packWeight({{b.data(), b.ld()}, n, k, transposed, packed.data()});
  }

  Bf16Matrix multiply(const Implementation& by, const Bf16Matrix& a, int32_t rows, const void* packed,
                      float alpha = 1, const BFloat16* bias = nullptr) const {
    Bf16Matrix c(rows, n, n + 3, kBf16Canary, true);
    Scratch scratch(by.kernels.gmmScratchBytes(n, k));
    by.kernels.gmm({.a = {a.data(), a.ld()},
                    .b = {packed == nullptr ? b.data() : nullptr, b.ld()},
                    .c = {c.data(), c.ld()},
                    .rows = rows,
                    .n = n,
                    .k = k,
                    .transposeB = transposed,
                    .scratch = scratch.data(),
                    .alpha = alpha,
                    .packedB = packed,
                    .bias = bias});
    return c;
  }
};

void checkCase(const Implementation& by, const Case& test, Random& random,
               std::initializer_list<int32_t> allRows = {0, 1, 7, 16, 17, 45, 200}) {
  Scratch packed(by.kernels.packedWeightBytes(test.n, test.k));
  test.pack(by, packed);
  for (const int32_t rows : allRows) {
    INFO(by.name << " rows " << rows << " n " << test.n << " k " << test.k
                 << (test.transposed ? " transposed" : ""));
    const Bf16Matrix a = randomInput(random, rows, test.k, test.k + 5);
    const float alpha = rows == 17 ? 0.37f : 1;
    const Bf16Matrix c = test.multiply(by, a, rows, packed.data(), alpha);
    CHECK(c.sameBits(test.multiply(by, a, rows, nullptr, alpha)));
    const Bf16Matrix bias = randomInput(random, 1, test.n, test.n);
    const Bf16Matrix biased = test.multiply(by, a, rows, packed.data(), alpha, bias.data());
    CHECK(biased.sameBits(test.multiply(by, a, rows, nullptr, alpha, bias.data())));
    CHECK((rows == 0 || test.n == 0 || !biased.sameBits(c)));
    CHECK(biased.gapsAreUntouched());
    CHECK(c.gapsAreUntouched());
  }
}

TEST_CASE("a product has the same bits by a packed weight and by the weight, at ragged and even sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (auto [n, k] : {std::pair{1, 1},
                        {1, 257},
                        {7, 2},
                        {16, 33},
                        {47, 258},
                        {48, 95},
                        {64, 256},
                        {100, 100},
                        {257, 1},
                        {65, 1061},
                        {130, 2049},
                        {192, 512}})
      for (const bool transposed : {false, true}) checkCase(by, Case(random, n, k, transposed), random);
}

// Sums of 12500 (AVX2, portable) and 33000 elements (AVX-512): one row stays packed, 7 rows do not.
TEST_CASE("a product by a packed weight has the same bits where not all of a's rows stay packed") {
  Random random(3);
  for (const Implementation& by : implementations())
    for (const int32_t k : {12500, 33000}) checkCase(by, Case(random, 17, k, false), random, {1, 7});
}

TEST_CASE("a packed weight without columns or without a sum is empty") {
  Random random(2);
  for (const Implementation& by : implementations())
    for (const bool transposed : {false, true}) {
      CHECK(by.kernels.packedWeightBytes(0, 9) == 0);
      CHECK(by.kernels.packedWeightBytes(9, 0) == 0);
      checkCase(by, Case(random, 0, 9, transposed), random);
      const Case none(random, 9, 0, transposed);
      Scratch packed(64);
      none.pack(by, packed);
      const Bf16Matrix a = randomInput(random, 3, 0, 5);
      CHECK(none.multiply(by, a, 3, packed.data()).sameBits(none.multiply(by, a, 3, nullptr)));
    }
}

TEST_CASE("a packed weight begins on a line of the cache whatever the sizes are") {
  for (const Implementation& by : implementations())
    for (int32_t n = 1; n < 200; n += 13)
      for (int32_t k = 1; k < 600; k += 97) CHECK(by.kernels.packedWeightBytes(n, k) % 64 == 0);
}

}  // namespace
}  // namespace sluice::ops

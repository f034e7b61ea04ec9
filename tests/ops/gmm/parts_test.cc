// Products of two parts: those of the gate and of the up projection of the same rows.
#include <array>
#include <catch2/catch.hpp>

#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

// The operands of one part.
struct Part {
  Bf16Matrix b, bias;
  std::unique_ptr<Scratch> packed;
  Part(Random& random, const ProductShape& s, bool transposed)
      : b(transposed ? randomInput(random, s.n, s.k, s.k + 3) : randomInput(random, s.k, s.n, s.n + 5)),
        bias(randomInput(random, 1, s.n, s.n)) {}

  void pack(const Implementation& by, const ProductShape& s, bool transposed, Rounding round) {
    packed = std::make_unique<Scratch>(by.kernels.packedWeightBytes(s.n, s.k));
    by.kernels.packWeight({.b = {b.data(), b.ld()},
                           .n = s.n,
                           .k = s.k,
                           .transposeB = transposed,
                           .packed = packed->data(),
                           .round = round});
  }
};

struct Variant {
  bool transposed, packed, biased, gathered;
  Rounding round = Rounding::kNone;
};

void checkCase(const Implementation& by, const ProductShape& s, const Variant& v) {
  INFO(by.name << " rows " << s.rows << " n " << s.n << " k " << s.k << (v.transposed ? ", transposed" : "")
               << (v.packed ? ", packed" : "") << (v.biased ? ", biased" : "")
               << (v.gathered ? ", gathered" : "") << (v.round == Rounding::kNone ? "" : ", rounded"));
  Random random(1);
  Part parts[2] = {{random, s, v.transposed}, {random, s, v.transposed}};
  const GatheredRows gathered(random, s.rows, s.k);
  const Bf16Matrix rows = gathered.copied();
  if (v.packed)
    for (Part& part : parts) part.pack(by, s, v.transposed, v.round);
  const auto product = [&](const Part& part, Bf16Matrix& c, Scratch& scratch) {
    GmmArgs args = {.a = {rows.data(), rows.ld()},
                    .b = {part.b.data(), part.b.ld()},
                    .c = {c.data(), c.ld()},
                    .rows = s.rows,
                    .n = s.n,
                    .k = s.k,
                    .transposeB = v.transposed,
                    .scratch = scratch.data(),
                    .alpha = v.biased ? 0.37f : 1,
                    .packedB = v.packed ? part.packed->data() : nullptr,
                    .bias = v.biased ? part.bias.data() : nullptr,
                    .roundB = v.round};
    if (v.gathered) {
      args.a = gathered.matrix();
      args.rowsA = gathered.index();
    }
    return args;
  };
  const auto output = [&](int32_t gap) { return Bf16Matrix(s.rows, s.n, s.n + gap, kBf16Canary, true); };
  std::array<Bf16Matrix, 2> alone = {output(3), output(3)}, together = {output(7), output(7)};
  for (int i = 0; i < 2; ++i) {
    Scratch scratch(by.kernels.gmmScratchBytes(s.n, s.k));
    by.kernels.gmm(product(parts[i], alone[i], scratch));
  }
  Scratch scratch(by.kernels.gmmScratchBytes(2 * s.n, s.k));
  GmmArgs both = product(parts[0], together[0], scratch);
  const GmmArgs second = product(parts[1], together[1], scratch);
  both.second = &second;
  by.kernels.gmm(both);
  for (int i = 0; i < 2; ++i) {
    INFO("part " << i);
    CHECK(together[i].sameBits(alone[i]));
    CHECK(together[i].gapsAreUntouched());
  }
}

constexpr int32_t kRows[] = {0, 1, 6, 16, 17, 45, 130};
constexpr std::pair<int32_t, int32_t> kSizes[] = {{1, 1},    {33, 31},  {64, 64}, {65, 300},
                                                  {70, 577}, {128, 96}, {5, 0},   {0, 5}};

TEST_CASE("every gmm of two parts has the bits of each part alone") {
  for (const Implementation& by : implementations())
    for (const int32_t rows : kRows)
      for (const auto& [n, k] : kSizes)
        for (const bool transposed : {false, true})
          for (const bool packed : {false, true})
            for (const bool biased : {false, true})
              checkCase(by, {rows, n, k}, {transposed, packed, biased, rows % 2 == 0 && !biased});
}

TEST_CASE("every gmm of two parts has their bits where rows, columns and sum take several blocks") {
  for (const Implementation& by : implementations())
    for (const bool transposed : {false, true})
      for (const bool packed : {false, true}) {
        checkCase(by, {390, 130, 96}, {transposed, packed, false, false});
        checkCase(by, {35, 65, 1061}, {transposed, packed, false, true});
        checkCase(by, {70, 128, 1062}, {transposed, packed, false, false});
        checkCase(by, {70, 65, 2081}, {transposed, packed, true, false});
      }
}

TEST_CASE("every gmm of two parts rounds each part as if it were alone") {
  for (const Implementation& by : implementations())
    for (const Rounding round : {Rounding::kMxE4m3, Rounding::kMxE4m3Square})
      for (const bool transposed : {false, true})
        for (const bool packed : {false, true}) {
          checkCase(by, {45, 96, 64}, {transposed, packed, false, false, round});
          checkCase(by, {7, 32, 96}, {transposed, packed, false, false, round});
        }
}

}  // namespace
}  // namespace sluice::ops

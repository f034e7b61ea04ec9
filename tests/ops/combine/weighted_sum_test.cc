// Every implementation of the weighted sum of rows against the reference.
#include <bit>
#include <catch2/catch.hpp>
#include <tuple>

#include "ops/reference/reference.h"
#include "tests/ops/testing/kernel_testing.h"

namespace sluice::ops {
namespace {

TEST_CASE("every weighted sum agrees with the reference at ragged, empty and odd sizes") {
  Random random(1);
  for (const Implementation& by : implementations())
    for (int32_t tokens : {0, 1, 2, 17})
      for (int32_t topK : {0, 1, 2, 8})
        for (int32_t n : {0, 1, 7, 8, 16, 31, 33, 64, 100, 257})
          for (const auto& [weighted, parts] : {std::pair(false, 1), {true, 1}, {false, 3}, {true, 2}}) {
            constexpr int32_t kSourceRows = 29;
            const Bf16Matrix src =
                randomInput(random, kSourceRows * parts, n, n + (weighted ? 5 : 0), weighted ? 1 : 0);
            std::vector<int32_t> position(static_cast<size_t>(tokens) * topK);
            for (int32_t& p : position) p = static_cast<int32_t>(random() % (kSourceRows + 5)) - 5;
            for (int32_t& p : position) p = std::max(p, -1);
            const std::vector<float> weight = randomFloats(random, tokens * topK);
            Bf16Matrix y(tokens, n, n + 3, kBf16Canary, true);
            const WeightedSumArgs args = {
                src.data(), src.ld(), position.data(), weighted ? weight.data() : nullptr,
                y.data(),   y.ld(),   tokens,          topK,
                n,          parts,    kSourceRows};
            by.kernels.weightedSum(args);
            std::vector<double> want(static_cast<size_t>(tokens) * n);
            weightedSumReference(args, want.data());
            int wrong = 0;
            for (int32_t t = 0; t < tokens; ++t)
              for (int32_t i = 0; i < n; ++i) {
                const double value = want[static_cast<size_t>(t) * n + i];
                const double tolerance =
                    kBf16Rounding * std::abs(value) + (topK + 1) * topK * 2 * parts * kF32Rounding;
                if (!agrees(toFloat(y.at(t, i)), value, tolerance)) ++wrong;
              }
            INFO(by.name << " tokens " << tokens << " topK " << topK << " n " << n << " parts " << parts);
            CHECK(wrong == 0);
            CHECK(y.gapsAreUntouched());
          }
}

TEST_CASE("every bf16 stored is rounded to nearest even, denormals, infinities and NaN included") {
  constexpr int32_t kCount = 1 << 16;
  Bf16Matrix src(1, kCount, kCount, kBf16NaN, false);
  for (int32_t i = 0; i < kCount; ++i) src.at(0, i) = {static_cast<uint16_t>(i)};
  const int32_t position = 0;
  for (const Implementation& by : implementations())
    for (float weight : {1.0f, 1.00390625f, -0.5f, 0.3333f, 2.0f}) {
      Bf16Matrix y(1, kCount, kCount, kBf16Canary, true);
      by.kernels.weightedSum({src.data(), kCount, &position, &weight, y.data(), kCount, 1, 1, kCount});
      int wrong = 0;
      for (int32_t i = 0; i < kCount; ++i) {
        const float product = 0.0f + weight * toFloat(src.at(0, i));
        const float got = toFloat(y.at(0, i));
        if (std::isnan(product) ? !std::isnan(got) : y.at(0, i) != toBFloat16(product)) ++wrong;
      }
      INFO(by.name << " weight " << weight);
      CHECK(wrong == 0);
    }
}

TEST_CASE("one row without a weight is its own sum, bit by bit") {
  constexpr int32_t kCount = 1 << 16;
  Bf16Matrix src(1, kCount, kCount, kBf16NaN, false);
  for (int32_t i = 0; i < kCount; ++i) src.at(0, i) = {static_cast<uint16_t>(i)};
  const std::vector<int32_t> position = {0, -1};
  for (const Implementation& by : implementations()) {
    Bf16Matrix y(2, kCount, kCount + 3, kBf16Canary, true);
    by.kernels.weightedSum({src.data(), kCount, position.data(), nullptr, y.data(), y.ld(), 2, 1, kCount});
    int wrong = 0;
    for (int32_t i = 0; i < kCount; ++i) wrong += y.at(0, i) != src.at(0, i) || y.at(1, i) != BFloat16{};
    INFO(by.name);
    CHECK(wrong == 0);
    CHECK(y.gapsAreUntouched());
  }
}

TEST_CASE("every weighted sum adds its bias once to each token, also where nothing else is added") {
  Random random(4);
  for (const Implementation& by : implementations())
    for (int32_t topK : {0, 1, 3})
      for (int32_t n : {0, 1, 7, 16, 33, 64, 100, 257})
        for (const auto& [weighted, parts] : {std::pair(false, 1), {true, 1}, {false, 3}, {true, 2}}) {
          constexpr int32_t kTokens = 9, kSourceRows = 5;
          const Bf16Matrix src = randomInput(random, kSourceRows * parts, n, n + 5);
          const Bf16Matrix bias = randomInput(random, 1, n, n);
          std::vector<int32_t> position(static_cast<size_t>(kTokens) * topK);
          for (int32_t& p : position) p = static_cast<int32_t>(random() % (kSourceRows + 1)) - 1;
          for (int32_t j = 0; j < topK; ++j) position[j] = -1;
          const std::vector<float> weight = randomFloats(random, kTokens * topK);
          Bf16Matrix y(kTokens, n, n + 3, kBf16Canary, true);
          const WeightedSumArgs args = {
              src.data(), src.ld(), position.data(), weighted ? weight.data() : nullptr,
              y.data(),   y.ld(),   kTokens,         topK,
              n,          parts,    kSourceRows,     bias.data()};
          by.kernels.weightedSum(args);
          std::vector<double> want(static_cast<size_t>(kTokens) * n);
          weightedSumReference(args, want.data());
          int wrong = 0;
          for (int32_t t = 0; t < kTokens; ++t)
            for (int32_t i = 0; i < n; ++i) {
              const double value = want[static_cast<size_t>(t) * n + i];
              const double tolerance =
                  kBf16Rounding * std::abs(value) + (topK + 2) * (topK + 1) * 2 * parts * kF32Rounding;
              wrong += !agrees(toFloat(y.at(t, i)), value, tolerance);
              wrong += t == 0 && toFloat(y.at(0, i)) != toFloat(bias.at(0, i));
            }
          INFO(by.name << " topK " << topK << " n " << n << " parts " << parts);
          CHECK(wrong == 0);
          CHECK(y.gapsAreUntouched());
        }
}

TEST_CASE("every weighted sum of float32 rows agrees with the reference, and none of it is rounded to bf16") {
  Random random(5);
  for (const Implementation& by : implementations())
    for (int32_t tokens : {0, 1, 9})
      for (int32_t topK : {0, 1, 3})
        for (int32_t n : {0, 1, 3, 7, 8, 16, 31, 33, 64, 257})
          for (const auto& [weighted, biased, parts] :
               {std::tuple(false, false, 1), {true, false, 1}, {false, true, 3}, {true, true, 2}}) {
            INFO(by.name << " tokens " << tokens << " topK " << topK << " n " << n << " parts " << parts);
            constexpr int32_t kSourceRows = 11;
            const std::vector<float> src = randomFloats(random, kSourceRows * parts * (n + 3)),
                                     weight = randomFloats(random, tokens * topK),
                                     bias = randomFloats(random, n);
            std::vector<int32_t> position(static_cast<size_t>(tokens) * topK);
            for (int32_t& p : position) p = static_cast<int32_t>(random() % (kSourceRows + 1)) - 1;
            F32Matrix y(tokens, n, n + 3, kF32Canary, true);
            const WeightedSumF32Args args = {
                src.data(), n + 3,  position.data(), weighted ? weight.data() : nullptr,
                y.data(),   y.ld(), tokens,          topK,
                n,          parts,  kSourceRows,     biased ? bias.data() : nullptr};
            by.kernels.weightedSumF32(args);
            std::vector<double> want(static_cast<size_t>(tokens) * n);
            weightedSumReference(args, want.data());
            int wrong = 0;
            for (int32_t t = 0; t < tokens; ++t)
              for (int32_t i = 0; i < n; ++i)
                wrong += !agrees(y.at(t, i), want[static_cast<size_t>(t) * n + i],
                                 (topK + 2) * (topK + 1) * 2 * parts * kF32Rounding);
            CHECK(wrong == 0);
            CHECK(y.gapsAreUntouched());
          }
}

TEST_CASE("one float32 row without a weight is its own sum, bit by bit") {
  Random random(6);
  constexpr int32_t kCount = 1000;
  std::vector<float> src(kCount);
  for (float& value : src) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  src[0] = std::bit_cast<float>(0x7f800001u);  // NaN that signals
  const std::vector<int32_t> position = {0, -1};
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    F32Matrix y(2, kCount, kCount + 3, kF32Canary, true);
    by.kernels.weightedSumF32({src.data(), kCount, position.data(), nullptr, y.data(), y.ld(), 2, 1, kCount});
    CHECK(std::memcmp(y.data(), src.data(), kCount * sizeof(float)) == 0);
    CHECK(std::all_of(&y.at(1, 0), &y.at(1, 0) + kCount, [](float value) { return value == 0; }));
    CHECK(y.gapsAreUntouched());
  }
}

TEST_CASE("the weighted sum gives an element the same bits at any column and any alignment") {
  for (const Implementation& by : implementations()) {
    INFO(by.name);
    Random random(3);
    constexpr int32_t kColumns = 211;
    const Bf16Matrix src = randomInput(random, 9, kColumns, kColumns);
    const std::vector<float> weight = randomFloats(random, 6);
    const std::vector<int32_t> position = {8, 0, 3, 5, -1, 1};
    Bf16Matrix y(1, kColumns, kColumns, kBf16Canary, true);
    WeightedSumArgs args = {src.data(), src.ld(), position.data(), weight.data(), y.data(), kColumns,
                            1,          6,        kColumns};
    by.kernels.weightedSum(args);
    for (int32_t col : {1, 8, 77, 210}) {
      Bf16Matrix part(1, kColumns - col, kColumns, kBf16Canary, true);
      args.src = src.data() + col;
      args.y = part.data();
      args.n = kColumns - col;
      by.kernels.weightedSum(args);
      bool same = true;
      for (int32_t i = 0; i < args.n; ++i) same = same && part.at(0, i) == y.at(0, col + i);
      CHECK(same);
    }
  }
}

}  // namespace
}  // namespace sluice::ops

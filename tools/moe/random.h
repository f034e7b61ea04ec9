// Random: a small seeded generator whose numbers are the same on every machine and library.
//
// Value type; one thread. splitmix64 steps (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014); streams of different (seed, stream) are independent.
#pragma once

#include <cmath>
#include <cstdint>

namespace sluice::tools {

class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(seed * kStep) {
    state_ = next() ^ (stream + 1) * 0xd1342543de82ef95u;
    next();
  }

  uint64_t next() {
    uint64_t z = (state_ += kStep);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // As so many calls of next().
  void skip(int64_t numbers) { state_ += static_cast<uint64_t>(numbers) * kStep; }

  // In the open interval (0, 1).
  double uniform() { return (static_cast<double>(next() >> 12) + 0.5) * 0x1p-52; }

  // 0 .. n-1.
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }

  // Mean 0, variance 1, nearly normal, by one call of next(): a sum of four uniform 16-bit numbers, because
  // it must be cheap.
  float normal() {
    const uint64_t bits = next();
    const auto sum =
        static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    // The variance of one is (2^32 - 1) / 12.
    return static_cast<float>(sum - 2 * 0xffff) * 2.6428914e-05f;
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

  uint64_t state_;
};

}  // namespace sluice::tools

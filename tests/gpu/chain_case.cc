#include "tests/gpu/chain_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice::gpu {
ChainCase::Sizes ChainCase::sizesOf(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto between = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  const auto major = [&] { return between(0, 1) == 0 ? Major::kK : Major::kMn; };
  Sizes sizes{};
  for (int& rows : sizes.rows) rows = between(1, 200);
  // Products of one stage let warpgroups be whole tasks apart.
  const bool isShort = between(0, 2) == 0;
  sizes.k = isShort ? between(8, 64) : between(72, 192);
  sizes.hidden = isShort ? between(8, 64) : between(64, 228);
  sizes.result = between(64, 228);
  sizes.columns = between(0, 2) == 0 ? 256 : 128;
  sizes.up = major();
  sizes.down = major();
  for (int& spare : sizes.spare) spare = between(0, 2);
  return sizes;
}

ChainCase::ChainCase(uint64_t seed) : ChainCase(seed, sizesOf(seed)) {}

ChainCase::ChainCase(uint64_t seed, const Sizes& sizes)
    : sizes_(sizes),
      rows_(1, sizes.rows[0] + sizes.rows[1], sizes.k, sizes.spare[0]),
      up_(2, sizes.up == Major::kMn ? sizes.k : sizes.hidden, sizes.up == Major::kMn ? sizes.hidden : sizes.k,
          sizes.spare[1]),
      hidden_(1, rows_.rows, sizes.hidden, sizes.spare[2]),
      down_(2, sizes.down == Major::kMn ? sizes.hidden : sizes.result,
            sizes.down == Major::kMn ? sizes.result : sizes.hidden, sizes.spare[3]),
      result_(1, rows_.rows, sizes.result, sizes.spare[4]) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 1);
  for (HostMatrix* matrix : {&rows_, &up_, &down_}) matrix->fill(random);
  const auto weightRows = [&](Major major) { return major == Major::kMn ? 64 : sizes.columns / 2; };
  matrices_ = {rows_.operand(128),   up_.operand(weightRows(sizes.up)),     hidden_.operand(16),
               hidden_.operand(128), down_.operand(weightRows(sizes.down)), result_.operand(16)};
  addTasks(seed);
}

void ChainCase::addTasks(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 2);
  uint32_t event = kStart + 1;
  int row = 0;
  for (int expert = 0; expert < 2; ++expert)
    for (int left = sizes_.rows[expert]; left > 0; ++event) {
      const int rows = std::min(left, kSlotRows);
      const uint32_t amount = 1 + random() % 3;
      uint32_t tiles = 0;
      for (int column = 0; column < sizes_.hidden; column += sizes_.columns, ++tiles)
        tasks_.add(1, Product{0, 1, 2, sizes_.up, row, rows, expert, column, sizes_.k},
                   {{{0, 0}, {kStart, kStarted}}, event, amount}, random);
      for (int column = 0; column < sizes_.result; column += sizes_.columns)
        tasks_.add(0, Product{3, 4, 5, sizes_.down, row, rows, expert, column, sizes_.hidden},
                   {{{event, tiles * amount}, {kStart, kStarted}}, 0, 0}, random);
      row += rows;
      left -= rows;
    }
  tasks_.shuffle(event, random);
}

std::string ChainCase::run(int blocks, uint64_t seed) {
  hidden_.clear();
  result_.clear();
  for (const HostMatrix* matrix : {&rows_, &up_, &hidden_, &down_, &result_}) matrix->registerAll();
  std::string wrong = tasks_.run(matrices_, sizes_.columns, blocks, seed);
  if (!wrong.empty()) return wrong;
  wrong = firstWrongValue(hidden_, rows_, up_, sizes_.up, "hidden");
  return wrong.empty() ? firstWrongValue(result_, hidden_, down_, sizes_.down, "result") : wrong;
}

std::string ChainCase::firstWrongValue(const HostMatrix& out, const HostMatrix& a, const HostMatrix& weight,
                                       Major major, const char* name) const {
  for (int r = 0; r < out.rows; ++r)
    for (int c = 0; c < out.columns; ++c) {
      const int expert = r < sizes_.rows[0] ? 0 : 1;
      double sum = 0, sizes = 0;
      for (int k = 0; k < a.columns; ++k) {
        const double term = a.value(0, r, k) *
                            (major == Major::kMn ? weight.value(expert, k, c) : weight.value(expert, c, k));
        sum += term;
        sizes += std::abs(term);
      }
      // one rounding to bf16, and as many to fp32 as there are terms
      const double allowed = std::abs(sum) / 256 + sizes * a.columns * 0x1p-24;
      if (!(std::abs(out.value(0, r, c) - sum) <= allowed))
        return fmt::format("{}[{}, {}] is {}, expected {}", name, r, c, out.value(0, r, c), sum);
    }
  return out.hasKeptGaps() ? "" : fmt::format("something was written outside of {}", name);
}

}  // namespace sluice::gpu

#include "tests/gpu/chain_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice::gpu {
namespace {

constexpr int kTokens = 50;  // of which rows are gathered

}  // namespace

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
  sizes.step = between(0, 2) == 0 ? between(16, sizes.columns) : sizes.columns;
  sizes.up = major();
  sizes.down = major();
  for (RowGaps& gaps : sizes.gaps) gaps = drawGaps(random);
  sizes.alpha = between(0, 1) == 0 ? 1 : 0.3F;
  sizes.hasBias = between(0, 1) == 0;
  sizes.divisor = between(0, 1) == 0 ? 0 : between(1, 3);
  // gathered rows of whole parts are copied, others are stored
  if (sizes.divisor > 0 && between(0, 2) > 0) sizes.k = (sizes.k + 7) / 8 * 8;
  return sizes;
}

ChainCase::ChainCase(uint64_t seed) : ChainCase(seed, sizesOf(seed)) {}

ChainCase::ChainCase(uint64_t seed, const Sizes& sizes)
    : sizes_(sizes),
      rows_(1, sizes.divisor == 0 ? sizes.rows[0] + sizes.rows[1] : kTokens, sizes.k, sizes.gaps[0]),
      hidden_(1, sizes.rows[0] + sizes.rows[1], sizes.hidden, sizes.gaps[2]),
      result_(1, hidden_.rows, sizes.result, sizes.gaps[4]),
      up_(2, sizes.up == Major::kMn ? sizes.k : sizes.hidden, sizes.up == Major::kMn ? sizes.hidden : sizes.k,
          sizes.gaps[1]),
      down_(2, sizes.down == Major::kMn ? sizes.hidden : sizes.result,
            sizes.down == Major::kMn ? sizes.result : sizes.hidden, sizes.gaps[3]) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 1);
  for (HostMatrix* matrix : {&rows_, &up_, &down_}) matrix->fill(random);
  for (int row = 0; row < hidden_.rows && sizes.divisor > 0; ++row)
    index_.push_back(static_cast<int32_t>(random() % (kTokens * static_cast<uint32_t>(sizes.divisor) + 1)) -
                     1);
  std::uniform_real_distribution<float> values(-1, 1);
  for (int i = 0; i < 2 * sizes.result && sizes.hasBias; ++i) bias_.push_back(toBf16(values(random)));
  const auto weightRows = [&](Major major) { return major == Major::kMn ? 64 : sizes.columns / 2; };
  matrices_ = {rows_.operand(128),   up_.operand(weightRows(sizes.up)),     hidden_.operand(64),
               hidden_.operand(128), down_.operand(weightRows(sizes.down)), result_.operand(64)};
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
      for (int column = 0; column < sizes_.hidden; column += sizes_.step, ++tiles) {
        Product up{0,         1,      2,
                   sizes_.up, row,    rows,
                   expert,    column, std::min(column + sizes_.step, sizes_.hidden),
                   sizes_.k};
        if (!index_.empty()) up.rowIndex = index_.data();
        up.divisor = sizes_.divisor;
        tasks_.add(1, up, {{{0, 0}, {kStart, kStarted}}, event, amount}, random);
      }
      for (int column = 0; column < sizes_.result; column += sizes_.step) {
        Product down{3,
                     4,
                     5,
                     sizes_.down,
                     row,
                     rows,
                     expert,
                     column,
                     std::min(column + sizes_.step, sizes_.result),
                     sizes_.hidden};
        down.alpha = sizes_.alpha;
        if (sizes_.hasBias) down.bias = &bias_[static_cast<size_t>(expert * sizes_.result)];
        tasks_.add(0, down, {{{event, tiles * amount}, {kStart, kStarted}}, 0, 0}, random);
      }
      row += rows;
      left -= rows;
    }
  tasks_.shuffle(event, random);
}

std::string ChainCase::run(GpuBackend& backend, double timeoutSeconds) {
  hidden_.clear();
  result_.clear();
  std::string wrong = tasks_.run(backend, matrices_,
                                 {rows_.memory(), up_.memory(), hidden_.memory(), down_.memory(),
                                  result_.memory(), rangeOf(index_), rangeOf(bias_)},
                                 timeoutSeconds);
  if (!wrong.empty()) return wrong;
  wrong = firstWrongHidden();
  return wrong.empty() ? firstWrongResult() : wrong;
}

ChainCase::Expected ChainCase::productAt(const HostMatrix& a, int row, const HostMatrix& weight, Major major,
                                         int expert, int column) {
  double sum = 0, sizes = 0;
  for (int k = 0; k < a.columns && row >= 0; ++k) {
    const double factor =
        major == Major::kMn ? weight.value(expert, k, column) : weight.value(expert, column, k);
    sum += a.value(0, row, k) * factor;
    sizes += std::abs(a.value(0, row, k) * factor);
  }
  return {sum, sizes * (a.columns + 2) * 0x1p-24};  // as many roundings to fp32 as there are terms
}

std::string ChainCase::firstWrongHidden() const {
  for (int r = 0; r < hidden_.rows; ++r)
    for (int c = 0; c < hidden_.columns; ++c) {
      const int place = index_.empty() ? r : index_[static_cast<size_t>(r)];
      const int row = index_.empty() || place < 0 ? place : place / sizes_.divisor;
      const auto [value, margin] = productAt(rows_, row, up_, sizes_.up, r < sizes_.rows[0] ? 0 : 1, c);
      if (!(std::abs(hidden_.value(0, r, c) - value) <= std::abs(value) / 256 + margin))
        return fmt::format("hidden[{}, {}] is {}, expected {}", r, c, hidden_.value(0, r, c), value);
    }
  return hidden_.hasKeptGaps() ? "" : "something was written outside of hidden";
}

std::string ChainCase::firstWrongResult() const {
  for (int r = 0; r < result_.rows; ++r)
    for (int c = 0; c < result_.columns; ++c) {
      const int expert = r < sizes_.rows[0] ? 0 : 1;
      const Expected product = productAt(hidden_, r, down_, sizes_.down, expert, c);
      const double bias =
          sizes_.hasBias ? fromBf16(bias_[static_cast<size_t>(expert * sizes_.result + c)]) : 0;
      const double value = double{sizes_.alpha} * product.value + bias;
      const double margin = product.margin + std::abs(bias) * 0x1p-24;
      if (!(std::abs(result_.value(0, r, c) - value) <= std::abs(value) / 256 + margin))
        return fmt::format("result[{}, {}] is {}, expected {}", r, c, result_.value(0, r, c), value);
    }
  return result_.hasKeptGaps() ? "" : "something was written outside of result";
}

}  // namespace sluice::gpu

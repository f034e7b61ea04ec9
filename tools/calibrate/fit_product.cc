#include "tools/calibrate/fit_product.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice::tools {
namespace {

constexpr int kParts = 4;
using Parts = std::array<double, kParts>;

// The factors of the formula's parts.
Parts costParts(const TimedProduct& p) {
  return {p.m * p.n * p.k, p.n * p.k * p.passes, p.m * p.k, p.m * p.n};
}

// The coefficients of the parts in `used`, by normal equations and elimination with pivots; 0 for the others.
Parts solve(std::span<const TimedProduct> products, const std::array<bool, kParts>& used) {
  double a[kParts][kParts + 1] = {};
  for (const TimedProduct& product : products) {
    Parts parts = costParts(product);
    for (int i = 0; i < kParts; ++i) parts[i] = used[i] ? parts[i] / product.seconds : 0;
    for (int i = 0; i < kParts; ++i) {
      for (int j = 0; j < kParts; ++j) a[i][j] += parts[i] * parts[j];
      a[i][kParts] += parts[i];
    }
  }
  for (int i = 0; i < kParts; ++i)
    if (!used[i]) a[i][i] = 1;
  // scaled, because the parts differ by many orders of magnitude
  Parts scale;
  for (int i = 0; i < kParts; ++i) scale[i] = 1 / std::sqrt(a[i][i]);
  for (int i = 0; i < kParts; ++i) {
    for (int j = 0; j < kParts; ++j) a[i][j] *= scale[i] * scale[j];
    a[i][kParts] *= scale[i];
  }
  for (int column = 0; column < kParts; ++column) {
    int pivot = column;
    for (int row = column + 1; row < kParts; ++row)
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    std::swap(a[column], a[pivot]);
    for (int row = 0; row < kParts; ++row) {
      if (row == column) continue;
      const double factor = a[row][column] / a[column][column];
      for (int j = column; j <= kParts; ++j) a[row][j] -= factor * a[column][j];
    }
  }
  Parts weights;
  for (int i = 0; i < kParts; ++i) weights[i] = a[i][kParts] / a[i][i] * scale[i];
  return weights;
}

}  // namespace

ProductRate fitProduct(std::span<const TimedProduct> products) {
  std::array<bool, kParts> used = {true, true, true, true};
  Parts weights = solve(products, used);
  for (int round = 1; round < kParts; ++round) {
    bool changed = false;
    for (int i = 1; i < kParts; ++i)
      if (used[i] && weights[i] < 0) {
        used[i] = false;
        changed = true;
      }
    if (!changed) break;
    weights = solve(products, used);
  }
  return {2 / weights[0], weights[1] / weights[0], weights[2] / weights[0], weights[3] / weights[0]};
}

double worstError(const ProductRate& rate, std::span<const TimedProduct> products) {
  double worst = 0;
  for (const TimedProduct& product : products) {
    const Parts parts = costParts(product);
    const double seconds =
        2 / rate.flops *
        (parts[0] + rate.halfRows * parts[1] + rate.halfColumns * parts[2] + rate.halfSum * parts[3]);
    worst = std::max(worst, std::abs(seconds / product.seconds - 1));
  }
  return worst;
}

}  // namespace sluice::tools

// Fits the four figures of a ProductRate to measured products.
//
// Free functions on values.
#pragma once

#include <span>

#include "runtime/cost/rates.h"

namespace sluice::tools {

struct TimedProduct {
  double m = 0, n = 0, k = 0;
  double passes = 1;  // over b: the number of blocks of rows
  double seconds = 0;
};

// Least squares of the relative error; a part whose figure would be negative is left out. Needs at least four
// products with different m, n and k.
ProductRate fitProduct(std::span<const TimedProduct> products);

// The largest relative error of the fit.
double worstError(const ProductRate& rate, std::span<const TimedProduct> products);

}  // namespace sluice::tools

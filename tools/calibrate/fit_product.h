// Fits the four figures of a ProductRate to measured products.
//
// Plain values in, plain values out.
#pragma once

#include <span>

#include "compiler/analysis/cost/rates.h"

namespace sluice::tools {

struct TimedProduct {
  double m = 0, n = 0, k = 0;
  double passes = 1;  // over b: blocks of rows
  double seconds = 0;
};

// Least squares of the relative error; a part that would be negative is left out. At least four products
// whose m, n and k differ.
ProductRate fitProduct(std::span<const TimedProduct> products);

// The largest relative error of the fit.
double worstError(const ProductRate& rate, std::span<const TimedProduct> products);

}  // namespace sluice::tools

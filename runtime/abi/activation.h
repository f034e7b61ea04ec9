// The activations in double precision, element by element: the reference of the kernels, and the slopes.
// A kind without a gate reads `gate` only, as one with a gate whose up is 1.
//
// Pure functions. At a corner the slope is the smaller one for max(gate, 0), and the one inside the limits
// for a clamp.
#pragma once

#include <algorithm>
#include <cmath>

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// act = f * u, where f is a function of gate and u of up; fSlope and uSlope are their derivatives.
struct ActivationPoint {
  double f, fSlope, u, uSlope;
  double act() const { return f * u; }
  double gateSlope() const { return fSlope * u; }
  double upSlope() const { return f * uSlope; }
};

// x * s(z(x)) with the sigmoid s, for SiLU (z = x) and the tanh form of GELU: 0.5 (1 + tanh y) = s(2 y).
inline ActivationPoint gatedSigmoid(double x, double z, double zSlope, double up) {
  const double s = 1 / (1 + std::exp(-z));
  return {x * s, s * (1 + x * (1 - s) * zSlope), up, 1};
}

// gate cut to at most the limit and up to within it, where slopes are 0 beyond; act = g s(scale g) (u +
// shift).
inline ActivationPoint clampedSigmoid(double limit, double scale, double shift, double gate, double up) {
  const double low = gate > limit ? limit : gate;
  const double within = up > limit ? limit : up < -limit ? -limit : up;
  ActivationPoint point = gatedSigmoid(low, scale * low, scale, within + shift);
  if (gate > limit) point.fSlope = 0;
  if (std::abs(up) > limit) point.uSlope = 0;
  return point;
}

inline ActivationPoint activationAt(ActivationKind kind, double limit, double gate, double up) {
  if (!findInfo(kind).isGated()) up = 1;
  switch (kind) {
    case ActivationKind::kSwiglu:
    case ActivationKind::kSilu:
      break;
    case ActivationKind::kSwigluClamp:
      return clampedSigmoid(limit, 1, 0, gate, up);
    case ActivationKind::kSwigluOai:
      return clampedSigmoid(limit, 1.702, 1, gate, up);
    case ActivationKind::kGeglu: {
      const double factor = 2 * std::sqrt(2 / M_PI);
      const double x = std::clamp(gate, -15.0, 15.0);  // beyond, s is 0 or 1
      return gatedSigmoid(gate, factor * (x + 0.044715 * x * x * x), factor * (1 + 3 * 0.044715 * x * x), up);
    }
    case ActivationKind::kReglu:
      if (std::isnan(gate)) return {gate, 0, up, 1};
      return {std::max(gate, 0.0), gate > 0 ? 1.0 : 0.0, up, 1};
    case ActivationKind::kSquaredReglu:
    case ActivationKind::kRelu2: {
      const double positive = std::isnan(gate) ? gate : std::max(gate, 0.0);
      return {positive * positive, 2 * positive, up, 1};
    }
  }
  return gatedSigmoid(gate, gate, 1, up);
}

}  // namespace sluice::ops

// The formulas of activations (ops/cpu/activation_point.h) on a thread of a GPU.
#pragma once

#include "ops/cpu/activation_point.h"
#include "ops/gpu/hw.h"

namespace sluice::gpu {

inline constexpr int kAnyActivation = -1;

// The activation of work that has one: the kernel's, if the kernel has only one.
template <int kActivation, class Work>
SLUICE_DEVICE ActivationKind chosenActivation(const Work* work) {
  if constexpr (kActivation == kAnyActivation)
    return load(&work->activation);
  else
    return static_cast<ActivationKind>(kActivation);
}

// What the formulas compute with.
struct Scalar {
  using F = float;
  SLUICE_DEVICE static F set(float x) { return x; }
  SLUICE_DEVICE static F add(F x, F y) { return x + y; }
  SLUICE_DEVICE static F sub(F x, F y) { return x - y; }
  SLUICE_DEVICE static F mul(F x, F y) { return x * y; }
  SLUICE_DEVICE static F div(F x, F y) { return x * reciprocal(y); }
  SLUICE_DEVICE static F mulAdd(F x, F y, F z) { return x * y + z; }
  SLUICE_DEVICE static F above(F x, F y, F a, F b) { return x > y ? a : b; }
  SLUICE_DEVICE static F exp(F x) { return exponential(x); }
};

}  // namespace sluice::gpu

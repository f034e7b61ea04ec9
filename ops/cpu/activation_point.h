// The activations over any Vector (rows_*.cc, and a float on GPUs): the formulas of runtime/abi/activation.h
// in fp32. Internal linkage: see blocked_product.h.
#pragma once

#include <type_traits>

#include "runtime/abi/device.h"
#include "runtime/base/activation_info.h"

namespace sluice::ops {
namespace {

// act = f * u; fSlope is the slope of f. A function's passUp() returns the part of a gradient that passes to
// up.
template <class V>
struct VectorPoint {
  using F = typename V::F;
  F f, fSlope, u;
};

// x * s(z), its slope s * (1 + x * (1 - s) * zSlope).
template <class V>
SLUICE_DEVICE VectorPoint<V> gateSigmoid(typename V::F x, typename V::F z, typename V::F xSlope,
                                         typename V::F up) {
  const auto one = V::set(1.0f);
  const auto s = V::div(one, V::add(one, V::exp(V::sub(V::set(0.0f), z))));
  return {V::mul(x, s), V::mul(s, V::mulAdd(xSlope, V::sub(one, s), one)), up};
}

template <class V>
struct Swiglu {
  using F = typename V::F;
  SLUICE_DEVICE explicit Swiglu(float) {}
  SLUICE_DEVICE VectorPoint<V> at(F gate, F up) const { return gateSigmoid<V>(gate, gate, gate, up); }
  SLUICE_DEVICE F passUp(F, F grad) const { return grad; }
};

// Clamps gate to at most the limit and up to within it. No gradient passes where a value was clamped. NaN
// passes.
template <class V>
struct SwigluClamp {
  using F = typename V::F;
  SLUICE_DEVICE explicit SwigluClamp(float bound) : limit(V::set(bound)), low(V::set(-bound)) {}
  SLUICE_DEVICE VectorPoint<V> at(F gate, F up) const {
    const F cut = cutGate(gate);
    VectorPoint<V> point = gateSigmoid<V>(cut, cut, cut, cutUp(up));
    point.fSlope = cutSlope(gate, point.fSlope);
    return point;
  }
  SLUICE_DEVICE F cutGate(F gate) const { return V::above(gate, limit, limit, gate); }
  SLUICE_DEVICE F cutUp(F up) const { return V::above(low, up, low, V::above(up, limit, limit, up)); }
  SLUICE_DEVICE F cutSlope(F gate, F slope) const { return V::above(gate, limit, V::set(0.0f), slope); }
  SLUICE_DEVICE F passUp(F up, F grad) const {
    const F zero = V::set(0.0f);
    return V::above(low, up, zero, V::above(up, limit, zero, grad));
  }
  F limit, low;
};

template <class V>
struct SwigluOai : SwigluClamp<V> {
  using F = typename V::F;
  using SwigluClamp<V>::SwigluClamp;
  SLUICE_DEVICE VectorPoint<V> at(F gate, F up) const {
    const F cut = this->cutGate(gate), scaled = V::mul(V::set(1.702f), cut);
    VectorPoint<V> point = gateSigmoid<V>(cut, scaled, scaled, V::add(this->cutUp(up), V::set(1.0f)));
    point.fSlope = this->cutSlope(gate, point.fSlope);
    return point;
  }
};

// The tanh form. Beyond +-15 the sigmoid is 0 or 1, and the cube and the slope would overflow.
template <class V>
struct Geglu {
  using F = typename V::F;
  SLUICE_DEVICE explicit Geglu(float) {}
  SLUICE_DEVICE VectorPoint<V> at(F gate, F up) const {
    const F high = V::set(15.0f), low = V::set(-15.0f);
    const F factor = V::set(1.5957691216f);  // 2 sqrt(2 / pi)
    const F x = V::above(gate, high, high, V::above(low, gate, low, gate));
    const F square = V::mul(x, x);
    const F z = V::mul(V::mul(factor, x), V::mulAdd(square, V::set(0.044715f), V::set(1.0f)));
    const F zSlope = V::mul(factor, V::mulAdd(square, V::set(3 * 0.044715f), V::set(1.0f)));
    return gateSigmoid<V>(gate, z, V::mul(x, zSlope), up);
  }
  SLUICE_DEVICE F passUp(F, F grad) const { return grad; }
};

template <class V>
struct Reglu {
  using F = typename V::F;
  SLUICE_DEVICE explicit Reglu(float) {}
  SLUICE_DEVICE VectorPoint<V> at(F gate, F up) const {
    const F zero = V::set(0.0f);
    return {V::above(zero, gate, zero, gate), V::above(gate, zero, V::set(1.0f), zero), up};
  }
  SLUICE_DEVICE F passUp(F, F grad) const { return grad; }
};

template <class V>
struct SquaredReglu {
  using F = typename V::F;
  SLUICE_DEVICE explicit SquaredReglu(float) {}
  SLUICE_DEVICE VectorPoint<V> at(F gate, F up) const {
    const F zero = V::set(0.0f);
    const F positive = V::above(zero, gate, zero, gate);
    return {V::mul(positive, positive), V::add(positive, positive), up};
  }
  SLUICE_DEVICE F passUp(F, F grad) const { return grad; }
};

template <ActivationKind K>
using HasGate = std::bool_constant<findInfo(K).isGated()>;

// Calls `body` with the function for `kind`, and whether it has a gate. Without one, up is 1.
template <class V, class Body>
SLUICE_DEVICE void withActivation(ActivationKind kind, float limit, const Body& body) {
  using enum ActivationKind;
  switch (kind) {
    case kSwiglu:
      return body(Swiglu<V>(limit), HasGate<kSwiglu>());
    case kSilu:
      return body(Swiglu<V>(limit), HasGate<kSilu>());
    case kSwigluClamp:
      return body(SwigluClamp<V>(limit), HasGate<kSwigluClamp>());
    case kGeglu:
      return body(Geglu<V>(limit), HasGate<kGeglu>());
    case kReglu:
      return body(Reglu<V>(limit), HasGate<kReglu>());
    case kSquaredReglu:
      return body(SquaredReglu<V>(limit), HasGate<kSquaredReglu>());
    case kRelu2:
      return body(SquaredReglu<V>(limit), HasGate<kRelu2>());
    case kSwigluOai:
      return body(SwigluOai<V>(limit), HasGate<kSwigluOai>());
  }
}

}  // namespace
}  // namespace sluice::ops

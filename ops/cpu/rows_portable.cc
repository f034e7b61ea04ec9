// The kernels that go over rows for any machine: Vector is one element.
#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/row_kernels.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

// rows_avx512.cc documents the members.
struct Vector {
  using F = float;
  static constexpr int32_t kWidth = 1;

  static F load(const BFloat16* from, int32_t) { return widenBf16(from->bits); }
  static void store(BFloat16* to, F x, int32_t) { to->bits = roundToBf16(x); }
  static F load(const float* from, int32_t) { return *from; }
  static void store(float* to, F x, int32_t) { *to = x; }
  static F set(float x) { return x; }
  static F add(F x, F y) { return x + y; }
  static F sub(F x, F y) { return x - y; }
  static F mul(F x, F y) { return x * y; }
  static F div(F x, F y) { return x / y; }
  static F mulAdd(F x, F y, F z) { return x * y + z; }
  static F above(F x, F y, F a, F b) { return x > y ? a : b; }
  static F exp(F x) { return __builtin_expf(x); }
  static float sum(F x) { return x; }
};

}  // namespace

namespace portable {

constinit const RowKernels rows = kRowKernels<Vector>;

}  // namespace portable
}  // namespace sluice::ops

// FlushSubnormals: during its lifetime the arithmetic of its thread treats subnormal numbers (below 2^-126)
// as zero, as operands and as results.
//
// vdpbf16ps and tdpbf16ps always do this; with FlushSubnormals products mean the same on all instruction
// sets. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace sluice::ops {
namespace {

class FlushSubnormals {
 public:
  FlushSubnormals() : before_(control()) { setControl(before_ | kFlush); }
  ~FlushSubnormals() { setControl(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  // operands and results must not move across a change, hence the "memory"
#if defined(__SSE__)
  using Control = uint32_t;
  static constexpr Control kFlush = 0x8040;  // flush to zero, denormals are zero
  static Control control() { return _mm_getcsr(); }
  static void setControl(Control to) {
    asm volatile("" ::: "memory");
    _mm_setcsr(to);
    asm volatile("" ::: "memory");
  }
#elif defined(__aarch64__)
  using Control = uint64_t;
  static constexpr Control kFlush = uint64_t{1} << 24;  // FZ: both
  static Control control() {
    Control now;
    asm volatile("mrs %0, fpcr" : "=r"(now)::"memory");
    return now;
  }
  static void setControl(Control to) { asm volatile("msr fpcr, %0" ::"r"(to) : "memory"); }
#else
#error "FlushSubnormals does not know how this machine flushes subnormal numbers to zero"
#endif

  const Control before_;
};

}  // namespace
}  // namespace sluice::ops

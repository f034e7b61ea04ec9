// CPUID leaves 1, 7 and 7.1, XCR0, and the permission that Linux requires before tiles may be used.
#include "ops/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>

namespace sluice::ops {
namespace {

constexpr bool hasBit(uint64_t word, int bit) { return ((word >> bit) & 1) != 0; }

// XCR0: which registers the system saves. May be called only if CPUID reports XGETBV.
uint64_t savedState() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// The tile registers are 8 KiB per thread, so Linux saves them only for processes that request permission.
bool requestTilePermission() {
#if defined(__linux__)
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  constexpr uint64_t kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;
  CpuFeatures cpu;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return cpu;
  const bool fma = hasBit(c, 12), osxsave = hasBit(c, 27), avx = hasBit(c, 28), f16c = hasBit(c, 29);
  if (!osxsave || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
  const uint64_t saved = savedState();
  cpu.avx2 = fma && f16c && hasBit(b, 5) && (saved & kYmmState) == kYmmState;
  const bool avx512 = hasBit(b, 16) && hasBit(b, 17) && hasBit(b, 30) && hasBit(b, 31) && hasBit(c, 11);
  const bool amx = hasBit(d, 22) && hasBit(d, 24) && hasBit(d, 25);
  if (!cpu.avx2 || a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return cpu;
  cpu.avxVnni = hasBit(a, 4);
  cpu.avx512Bf16 = avx512 && hasBit(a, 5) && (saved & kZmmState) == kZmmState;
  if (!cpu.avx512Bf16) return cpu;
  cpu.amx = amx && (saved & kTileState) == kTileState && requestTilePermission();
  return cpu;
}

}  // namespace

const CpuFeatures& cpuFeatures() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace sluice::ops

#else

namespace sluice::ops {

const CpuFeatures& cpuFeatures() {
  static const CpuFeatures features;
  return features;
}

}  // namespace sluice::ops

#endif

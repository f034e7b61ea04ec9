// The kernels that this machine can run, and their tables: by CPUID leaves 1, 7 and 7.1, XCR0, and the
// permission that Linux requires before tiles may be used.
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "ops/cpu/kernel_functions.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// The instruction sets that the processor and the operating system allow this process. AVX-VNNI and AVX-512
// count only if AVX2 does, and AMX only if AVX-512 does; many CPUs have one of AVX-VNNI and AVX-512 without
// the other.
struct CpuFeatures {
  bool avx2 = false;        // AVX2, FMA, F16C, and the system saves ymm
  bool avxVnni = false;     // AVX-VNNI, which AVX-512 VNNI does not include
  bool avx512Bf16 = false;  // AVX-512 F, BW, VL, DQ, BF16, VNNI, and the system saves zmm
  bool amx = false;         // AMX tiles, bf16 and int8, and the system granted this process the tile state
};

#if defined(__x86_64__)

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

#else

CpuFeatures detect() { return {}; }

#endif

// Detected once, at the first call; any thread may call.
const CpuFeatures& cpuFeatures() {
  static const CpuFeatures features = detect();
  return features;
}

constexpr std::array kAllIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Bf16, Isa::kAmx};

const KernelSet* findTable(Isa isa) {
  static const KernelSet kPortable{portable::products, portable::rows, Isa::kPortable};
#if defined(__x86_64__)
  static const KernelSet kAvx2{avx2::products, avx2::rows, Isa::kAvx2};
  static const KernelSet kAvxVnni = [] {
    // A KernelSet is never destroyed, so its table is not destroyed either.
    static const auto& gmms = *new auto(replaceProducts(avx2::products.gmms, avxvnni::codeProducts));
    KernelSet set = kAvx2;
    set.gmms = gmms;
    set.isa = Isa::kAvxVnni;
    return set;
  }();
  static const KernelSet kAvx512{avx512::products, avx512::rows, Isa::kAvx512Bf16};
  static const KernelSet kAmx{amx::products, avx512::rows, Isa::kAmx};
  if (isa == Isa::kAvx2) return &kAvx2;
  if (isa == Isa::kAvxVnni) return &kAvxVnni;
  if (isa == Isa::kAvx512Bf16) return &kAvx512;
  if (isa == Isa::kAmx) return &kAmx;
#else
  static_cast<void>(isa);
#endif
  return &kPortable;
}

template <class Isas>
std::string joinNames(const Isas& isas) {
  std::string names;
  for (Isa isa : isas) {
    if (!names.empty()) names += ", ";
    names += isaName(isa);
  }
  return names;
}

}  // namespace

std::vector<GmmKernels> replaceProducts(std::span<const GmmKernels> base,
                                        std::span<const GmmKernels> others) {
  std::vector<GmmKernels> products(base.begin(), base.end());
  for (GmmKernels& product : products)
    for (const GmmKernels& other : others)
      if (other.types == product.types) product = other;
  return products;
}

std::string_view isaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx512Bf16:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

std::optional<Isa> isaFromName(std::string_view name) {
  for (Isa isa : kAllIsas)
    if (isaName(isa) == name) return isa;
  return std::nullopt;
}

std::vector<Isa> supportedIsas() {
  const CpuFeatures& cpu = cpuFeatures();
  std::vector<Isa> isas = {Isa::kPortable};
  if (cpu.avx2) isas.push_back(Isa::kAvx2);
  if (cpu.avxVnni) isas.push_back(Isa::kAvxVnni);
  if (cpu.avx512Bf16) isas.push_back(Isa::kAvx512Bf16);
  if (cpu.amx) isas.push_back(Isa::kAmx);
  return isas;
}

Expected<const KernelSet*> kernelsFor(Isa isa) {
  const std::vector<Isa> supported = supportedIsas();
  if (std::find(supported.begin(), supported.end(), isa) == supported.end())
    return Error{fmt::format("this machine cannot run the {} kernels; it supports {}", isaName(isa),
                             joinNames(supported))};
  return findTable(isa);
}

Expected<const KernelSet*> selectKernels() {
  const char* const name = std::getenv("SLUICE_ISA");
  if (name == nullptr || *name == '\0') return kernelsFor(supportedIsas().back());
  const std::optional<Isa> isa = isaFromName(name);
  if (!isa)
    return Error{fmt::format("SLUICE_ISA is '{}', expected one of {}; this machine supports {}", name,
                             joinNames(kAllIsas), joinNames(supportedIsas()))};
  Expected<const KernelSet*> kernels = kernelsFor(*isa);
  if (!kernels) return Error{fmt::format("SLUICE_ISA is '{}': {}", name, kernels.error().message)};
  return kernels;
}

}  // namespace sluice::ops

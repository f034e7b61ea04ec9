// The kernels that this machine can run, and their tables.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "ops/cpu/cpu_features.h"
#include "ops/cpu/kernel_functions.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

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

// The kernels that this machine can run, and their tables.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "ops/abi/kernels.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/kernel_functions.h"

namespace sluice::ops {
namespace {

constexpr std::array kAllIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16, Isa::kAmx};

constexpr KernelSet kPortableSet = {
    .isa = Isa::kPortable,
    .gmmTypes = kGmmTypes,
    .weightGradTypes = kWeightGradTypes,
    .gmm = portable::gmm,
    .packWeight = portable::packWeight,
    .gmmWeightGrad = portable::gmmWeightGrad,
    .activation = portable::activation,
    .activationGrad = portable::activationGrad,
    .gatherRows = portable::gatherRows,
    .weightedSum = portable::weightedSum,
    .add = portable::add,
    .scale = portable::scale,
    .gmmScratchBytes = portable::gmmScratchBytes,
    .packedWeightBytes = portable::packedWeightBytes,
    .weightGradScratchBytes = portable::weightGradScratchBytes,
};

#if defined(__x86_64__)
constexpr KernelSet kAvx2Set = {
    .isa = Isa::kAvx2,
    .gmmTypes = kGmmTypes,
    .weightGradTypes = kWeightGradTypes,
    .gmm = avx2::gmm,
    .packWeight = avx2::packWeight,
    .gmmWeightGrad = avx2::gmmWeightGrad,
    .activation = avx2::activation,
    .activationGrad = avx2::activationGrad,
    .gatherRows = portable::gatherRows,
    .weightedSum = avx2::weightedSum,
    .add = avx2::add,
    .scale = avx2::scale,
    .gmmScratchBytes = avx2::gmmScratchBytes,
    .packedWeightBytes = avx2::packedWeightBytes,
    .weightGradScratchBytes = avx2::weightGradScratchBytes,
};

constexpr KernelSet kAvx512Set = {
    .isa = Isa::kAvx512Bf16,
    .gmmTypes = kGmmTypes,
    .weightGradTypes = kWeightGradTypes,
    .gmm = avx512::gmm,
    .packWeight = avx512::packWeight,
    .gmmWeightGrad = avx512::gmmWeightGrad,
    .activation = avx512::activation,
    .activationGrad = avx512::activationGrad,
    .gatherRows = portable::gatherRows,
    .weightedSum = avx512::weightedSum,
    .add = avx512::add,
    .scale = avx512::scale,
    .gmmScratchBytes = avx512::gmmScratchBytes,
    .packedWeightBytes = avx512::packedWeightBytes,
    .weightGradScratchBytes = avx512::weightGradScratchBytes,
};

constexpr KernelSet kAmxSet = {
    .isa = Isa::kAmx,
    .gmmTypes = kGmmTypes,
    .weightGradTypes = kWeightGradTypes,
    .gmm = amx::gmm,
    .packWeight = amx::packWeight,
    .gmmWeightGrad = amx::gmmWeightGrad,
    .activation = avx512::activation,
    .activationGrad = avx512::activationGrad,
    .gatherRows = portable::gatherRows,
    .weightedSum = avx512::weightedSum,
    .add = avx512::add,
    .scale = avx512::scale,
    .gmmScratchBytes = amx::gmmScratchBytes,
    .packedWeightBytes = amx::packedWeightBytes,
    .weightGradScratchBytes = amx::weightGradScratchBytes,
};

const KernelSet* tableOf(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return &kPortableSet;
    case Isa::kAvx2:
      return &kAvx2Set;
    case Isa::kAvx512Bf16:
      return &kAvx512Set;
    case Isa::kAmx:
      return &kAmxSet;
  }
  return &kPortableSet;
}
#else
const KernelSet* tableOf(Isa) { return &kPortableSet; }
#endif

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

std::string_view isaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
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
  if (cpu.avx512Bf16) isas.push_back(Isa::kAvx512Bf16);
  if (cpu.amxBf16) isas.push_back(Isa::kAmx);
  return isas;
}

Expected<const KernelSet*> kernelsFor(Isa isa) {
  const std::vector<Isa> supported = supportedIsas();
  if (std::find(supported.begin(), supported.end(), isa) == supported.end())
    return Error{fmt::format("this machine cannot run the {} kernels; it supports {}", isaName(isa),
                             joinNames(supported))};
  return tableOf(isa);
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

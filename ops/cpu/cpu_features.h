// The instruction sets that the processor and the operating system allow this process.
//
// Detected once, at the first call; any thread may call. AVX-VNNI and AVX-512 count only if AVX2 does, and
// AMX only if AVX-512 does; many CPUs have one of AVX-VNNI and AVX-512 without the other.
#pragma once

namespace sluice::ops {

struct CpuFeatures {
  bool avx2 = false;        // AVX2, FMA, F16C, and the system saves ymm
  bool avxVnni = false;     // AVX-VNNI, which AVX-512 VNNI does not include
  bool avx512Bf16 = false;  // AVX-512 F, BW, VL, DQ, BF16, VNNI, and the system saves zmm
  bool amx = false;         // AMX tiles, bf16 and int8, and the system granted this process the tile state
};

const CpuFeatures& cpuFeatures();

}  // namespace sluice::ops

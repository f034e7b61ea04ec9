// The instruction sets that the processor and the operating system allow this process.
//
// Detected once, at the first call; any thread may call. Each set counts only if the sets before it do.
#pragma once

namespace sluice::ops {

struct CpuFeatures {
  bool avx2 = false;        // AVX2, FMA, and the system saves ymm
  bool avx512Bf16 = false;  // AVX-512 F, BW, VL, DQ, BF16, VNNI, and the system saves zmm
  bool amx = false;         // AMX tiles, bf16 and int8, and the system granted this process the tile state
};

const CpuFeatures& cpuFeatures();

}  // namespace sluice::ops

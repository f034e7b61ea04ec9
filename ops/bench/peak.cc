#include "ops/bench/peak.h"

namespace sluice::ops {

double runPeak(Isa isa, int64_t loops) {
  switch (isa) {
    case Isa::kPortable:
      return runPortablePeak(loops);
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return runAvx2FmaPeak(loops);
    case Isa::kAvx512Bf16:
      return runAvx512DotPeak(loops);
    case Isa::kAmx:
      return runAmxDotPeak(loops);
  }
  return 0;
}

double runCodesPeak(Isa isa, int64_t loops) {
  switch (isa) {
    case Isa::kPortable:
      return runPortablePeak(loops);  // codes are multiplied in fp32
    case Isa::kAvx2:
      return runAvx2CodesPeak(loops);
    case Isa::kAvxVnni:
      return runAvxVnniCodesPeak(loops);
    case Isa::kAvx512Bf16:
      return runAvx512CodesPeak(loops);
    case Isa::kAmx:
      return runAmxCodesPeak(loops);
  }
  return 0;
}

}  // namespace sluice::ops

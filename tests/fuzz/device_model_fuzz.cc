// Device models: what is loaded is inside the limits that the compiler relies on.
#include <cmath>

#include "compiler/target/target.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

void requireTarget(const Target& target) {
  const bool separate = target.cubeCores != 0;
  fuzz::require(separate == (target.vectorCores != 0), "cores of two kinds, or of one");
  fuzz::require(target.cores >= 1 && target.cores <= 4096, "1 to 4096 cores");
  fuzz::require(target.communicationCores <= target.vectorCores, "cores that communicate are vector cores");
  fuzz::require(target.slotRows > 0 && target.slotRows % 16 == 0, "slot rows are a multiple of 16");
  fuzz::require(target.tokenSlot > 0 && target.tiles.gmmColumns > 0, "sizes are positive");
  if (!target.rates) return;
  for (const double rate : {target.rates->matrix.gmm.flops, target.rates->vector.sum,
                            target.rates->memory.sharedRead, target.rates->link.bandwidth})
    fuzz::require(std::isfinite(rate) && rate > 0, "rates are positive numbers");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const fuzz::ScratchFile file(".json");
  file.write(fuzz::textOf(data, size));
  const Expected<Target> target = loadTarget(file.path(), {});
  if (target)
    requireTarget(*target);
  else
    fuzz::requireMessage(target.error().message, file.path() + ":");
  return 0;
}

// Cases on the model of the hardware.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/comm/in_process.h"
#include "tests/runtime/gpu/model_group.h"

namespace sluice::gpu {

// One rank. A resource.
class ModelRank {
 public:
  // `columns` of a tile. Launches have the seeds from this one on. Without memory of its own tasks access the
  // host's.
  ModelRank(int blocks, int columns, uint64_t seed, bool hasOwnMemory = true)
      : group_(1, {.blocks = blocks, .columns = columns, .seed = seed, .hasOwnMemory = hasOwnMemory}),
        backend_(*group_.backends()(alone_.transport(0))) {}

  GpuBackend& backend() { return *backend_; }

 private:
  InProcessGroup alone_{1};
  ModelGroup group_;
  std::unique_ptr<GpuBackend> backend_;
};

// Waits last as long as this at most, by the model's clock.
inline constexpr double kModelTimeout = 0.03;

// As run() of the case.
template <class Case>
std::string runOnModel(Case&& it, int blocks, uint64_t seed) {
  ModelRank rank(blocks, it.tileColumns(), seed);
  return it.run(rank.backend(), kModelTimeout);
}

}  // namespace sluice::gpu

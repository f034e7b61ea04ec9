// What checks run on: a GPU, or the hardware model in its place.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/comm/in_process.h"
#include "runtime/gpu/cuda/cuda_device.h"
#include "runtime/gpu/gpu_backend.h"
#include "tools/gpu_check/probes.h"

namespace sluice::tools {

// The backends of so many ranks with so many blocks each; 0: as many as there can be.
using BackendsOf = std::function<Expected<BackendMaker>(int ranks, int blocks)>;

struct CheckMachine {
  std::function<Expected<GpuFacts>()> facts;
  ProbeMachine probes;
  BackendsOf backends;
};

// The only rank of a launch. A resource.
class OneRank {
 public:
  static Expected<OneRank> make(const CheckMachine& machine, int blocks) {
    auto maker = machine.backends(1, blocks);
    if (!maker) return maker.error();
    auto alone = std::make_unique<InProcessGroup>(1);
    auto backend = (*maker)(alone->transport(0));
    if (!backend) return backend.error();
    return OneRank(std::move(alone), std::move(*backend));
  }

  GpuBackend& backend() const { return *backend_; }
  Transport& transport() const { return alone_->transport(0); }

 private:
  OneRank(std::unique_ptr<InProcessGroup> alone, std::unique_ptr<GpuBackend> backend)
      : alone_(std::move(alone)), backend_(std::move(backend)) {}

  std::unique_ptr<InProcessGroup> alone_;
  std::unique_ptr<GpuBackend> backend_;
};

}  // namespace sluice::tools

// LayerState: a task program as a layer of one rank, for the PyTorch op. Knows nothing of PyTorch.
//
// Resource type, shared by pointers. Any number of threads may call it: binding tensors, running a step and
// looking at what it gave are one action, for all layers that share a workspace. Ranks call it alike, in the
// same order. In a forked child nothing of it is used: calls are errors there, and what it holds is left
// alone.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/torch/layer_signature.h"
#include "ops/torch/saved_sets.h"
#include "runtime/api/context.h"
#include "runtime/api/origin.h"

namespace sluice {

struct NamedTensor {
  std::string_view name;
  TensorView view;
};

// A step's own tensors, owned by the context that ran it, are looked at before anybody else runs a step.
class StepOutputs {
 public:
  virtual ~StepOutputs() = default;
  virtual Status look(Context& context) = 0;
};

class LayerState {
 public:
  // Collective over the ranks of the transport. `workspace` is of this transport, and `turn` of the
  // workspace; both the transport and `turn` outlive what is made.
  static Expected<std::shared_ptr<LayerState>> create(Program program, Transport& transport,
                                                      std::shared_ptr<Workspace> workspace, std::mutex& turn,
                                                      double timeoutSeconds);
  LayerState(const LayerState&) = delete;
  LayerState& operator=(const LayerState&) = delete;

  const TaskProgram& program() const { return program_.tables(); }
  int rank() const { return rank_; }
  SavedSets& savedSets() { return savedSets_; }
  const SavedSets& savedSets() const { return savedSets_; }
  int64_t savedBytes() const;

  // In the place of a step of any layer of the workspace: it fails at all ranks, at others with this reason.
  Status refuse(const std::string& why);

  // Binds the tensors and runs the entry; what it leaves in the context is shown to `outputs`, where given.
  // Tensors that cannot be bound fail the step at all ranks, as all else does that a rank finds wrong with
  // it.
  Status run(std::string_view entry, std::span<const NamedTensor> tensors, uint32_t set,
             StepOutputs* outputs = nullptr);
  // Likewise, but returns at once. The tensors live until the step is done.
  Expected<PendingStep> submit(std::string_view entry, std::span<const NamedTensor> tensors, uint32_t set);

  // Error in a process that was forked after this was made.
  Status checkProcess() const { return origin_.check("the layer"); }

 private:
  LayerState(Program program, int rank, std::unique_ptr<Context> context,
             std::shared_ptr<Workspace> workspace, std::mutex& turn, double timeoutSeconds);
  Status prepare(std::span<const NamedTensor> tensors, uint32_t set);

  Program program_;
  const int rank_;
  const Origin origin_;
  SavedSets savedSets_;
  std::unique_ptr<Context> context_;
  std::shared_ptr<Workspace> workspace_;
  const double timeoutSeconds_;
  uint32_t sets_ = 1;  // of the context, as all ranks have agreed on; by who has the turn
  std::mutex& turn_;   // of the workspace: who holds it may use a context of it
};

using LayerStatePtr = std::shared_ptr<LayerState>;

}  // namespace sluice

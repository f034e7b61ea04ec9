// LayerState: a task program as a layer of one rank, for the PyTorch op. It does not depend on PyTorch.
//
// Resource type, shared by pointers. Any number of threads may call it: binding tensors, running a step and
// reading its results are one action among all layers that share a workspace. All ranks make the same calls
// in the same order. In a forked child calls are errors, and its resources are not touched.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  // Not 0: the tensor holds what it held in earlier steps with this number, so that its packed form is kept.
  uint64_t content = 0;
};

// Tensors of a step that the context owns are read before any other step runs.
class StepOutputs {
 public:
  virtual ~StepOutputs() = default;
  virtual Status look(Context& context) = 0;
};

class LayerState {
 public:
  // Collective over the ranks of the transport. `workspace` is of this transport, and `turn` of the
  // workspace; both the transport and `turn` outlive the state.
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
  int64_t packedBytes() const;

  // Replaces a step of any layer of the workspace: the step fails at all ranks, at the others with this
  // reason.
  Status refuse(const std::string& why);

  // Binds the tensors and runs the entry; `outputs`, where given, reads what the step leaves in the context.
  // Tensors that cannot be bound fail the step at all ranks, and so does every other error that a rank finds.
  Status run(std::string_view entry, std::span<const NamedTensor> tensors, uint32_t set,
             StepOutputs* outputs = nullptr);
  // The same, but returns at once. The tensors live until the step is done.
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
  // Used by the thread that has the turn.
  std::map<std::string, uint64_t, std::less<>> contents_;  // of the tensors that are bound as constant
  uint32_t sets_ = 1;                                      // of the context, agreed on by all ranks
  std::mutex& turn_;  // of the workspace: its holder may use a context of the workspace
};

using LayerStatePtr = std::shared_ptr<LayerState>;

}  // namespace sluice

// LayerState: a task program as a layer of one rank, for the PyTorch op. It does not depend on PyTorch.
//
// Resource type, shared by pointers. Any number of threads may call it: binding tensors, running a step and
// reading its results form one unit that other layers of the workspace do not interrupt. All ranks must make
// the same calls in the same order. In a forked child calls are errors, and the child does not touch the
// resources.
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
#include "runtime/base/child_process.h"

namespace sluice {

struct NamedTensor {
  std::string_view name;
  TensorView view;
  // Not 0: the tensor has the same content as in earlier steps with this number, so its packed form is kept.
  uint64_t content = 0;
};

// An output of rows, and where they are to be written.
struct NamedRows {
  std::string_view name;
  RowMemory memory;
  bool mayFail = true;  // Context::bindRows()
};

// What some steps have besides tensors.
struct StepExtras {
  std::span<const NamedRows> rows;       // in the caller's memory
  std::shared_ptr<StepWatcher> watcher;  // of a step that is not submitted, only ended() is called
  int64_t common = 0;                    // a number that all ranks must have alike, if it is not submitted
};

class LayerState {
 public:
  // Collective over the ranks of the transport. `workspace` belongs to this transport and `turn` to the
  // workspace; the transport and `turn` must outlive the state. `savedOf`: a state of the same program and
  // another workspace, whose saved sets this one uses (ContextOptions::savedOf).
  static Expected<std::shared_ptr<LayerState>> create(Program program, Transport& transport,
                                                      std::shared_ptr<Workspace> workspace, std::mutex& turn,
                                                      double timeoutSeconds,
                                                      std::shared_ptr<LayerState> savedOf = nullptr);
  LayerState(const LayerState&) = delete;
  LayerState& operator=(const LayerState&) = delete;

  const TaskProgram& program() const { return program_.tables(); }
  int rank() const { return rank_; }
  SavedSets& savedSets() { return savedSets_; }
  const SavedSets& savedSets() const { return savedSets_; }
  int64_t savedBytes() const;
  int64_t packedBytes() const;

  // Replaces a step of any layer of the workspace: the step fails at all ranks, at the other ranks with this
  // reason.
  Status refuse(const std::string& why);

  // Binds the tensors and runs the entry. Tensors that cannot be bound fail the step at all ranks, like every
  // other error that a rank finds.
  Status run(std::string_view entry, std::span<const NamedTensor> tensors, uint32_t set,
             const StepExtras& extras = {});
  // Like run(), but returns at once. What the step uses must live until it is done.
  Expected<PendingStep> submit(std::string_view entry, std::span<const NamedTensor> tensors, uint32_t set,
                               const StepExtras& extras = {});

  // Context::startTrace(), takeTrace() and stopTrace(), when no step of the workspace runs.
  void startTrace();
  Trace endTrace();

  // Fails in a forked child of the process that made this.
  Status checkProcess() const { return origin_.check("the layer"); }

 private:
  LayerState(Program program, int rank, std::unique_ptr<Context> context,
             std::shared_ptr<Workspace> workspace, std::mutex& turn, double timeoutSeconds);
  Status prepare(std::span<const NamedTensor> tensors, std::span<const NamedRows> rows, uint32_t set);
  void release(std::span<const NamedRows> rows);

  std::shared_ptr<LayerState> savedOf_;  // outlives the context
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
  std::mutex& turn_;  // of the workspace: only its holder may use a context of the workspace
};

using LayerStatePtr = std::shared_ptr<LayerState>;

}  // namespace sluice

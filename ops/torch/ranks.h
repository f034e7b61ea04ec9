// Ranks: the class torch.classes.sluice.Ranks, this process's place among the ranks that run layers together.
//
// Owns the transport and the workspace that all layers of it share; layers keep it alive. Collective: every
// rank of the job makes it. Errors are exceptions, as everywhere behind torch.ops.
#pragma once

#include <torch/custom_class.h>

#include <memory>
#include <mutex>
#include <string>

#include "ops/torch/block_pool.h"
#include "ops/torch/layer_state.h"
#include "runtime/api/context.h"
#include "runtime/api/origin.h"

namespace sluice {

class Ranks : public torch::CustomClassHolder {
 public:
  // Size 1: alone, `job` is not used. Else processes of this machine: `job` is a name that no other has.
  // Threads 0: this machine's processing units, shared by its ranks.
  Ranks(const std::string& job, int64_t rank, int64_t size, int64_t threads, double timeoutSeconds);
  ~Ranks() override;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  int64_t threads() const { return workspace_->threads(); }
  int64_t bytes() const { return workspace_->bytes(); }
  int64_t gradBytes() const { return grads_->bytes(); }
  // Frees the memory of gradients that are gone.
  void trim() { grads_->trim(); }

  Transport& transport() { return *transport_; }
  const std::shared_ptr<Workspace>& workspace() const { return workspace_; }
  std::mutex& turn() { return turn_; }
  // Of gradients of weights.
  BlockPool& grads() { return *grads_; }
  double timeoutSeconds() const { return timeoutSeconds_; }

  // In the place of a step of any layer of these ranks: it fails at all of them, at others with this reason.
  // Waits for them. Says nothing where they cannot be told: the caller has an error of its own.
  void refuse(const std::string& why);

  // An exception in a process that was forked after this was made.
  void checkProcess() const;

 private:
  int64_t rank_, size_;
  double timeoutSeconds_;
  const Origin origin_;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Workspace> workspace_;
  std::shared_ptr<BlockPool> grads_ = BlockPool::create();
  std::mutex turn_;  // who holds it may use a context of the workspace
};

// Throws where it cannot be read, or is for another number of ranks.
Program loadProgram(const Ranks& ranks, const std::string& path);

// A layer of these ranks. Collective; throws with `path`, where the program is from.
LayerStatePtr makeLayerState(Ranks& ranks, Program program, const std::string& path);

}  // namespace sluice

// Ranks: the class torch.classes.sluice.Ranks, this process's place among the ranks that run layers together.
//
// Owns the transport and the workspace that all its layers share; layers keep it alive. Collective: every
// rank of the job makes one. Errors are exceptions, like everywhere below torch.ops.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/torch/block_pool.h"
#include "ops/torch/layer_state.h"
#include "runtime/api/context.h"
#include "runtime/base/child_process.h"
#include "runtime/comm/transport.h"
#include "runtime/comm/ucx/ucx.h"

namespace sluice {

class Ranks : public torch::CustomClassHolder {
 public:
  // Size 1: `job` is not used. Otherwise the ranks are processes of this machine, and no other job may have
  // the name `job`. Threads 0: one per processing unit of this machine, divided among its ranks. `device`:
  // "cpu", or "cuda:N" for a rank alone, whose layers then take tensors on that GPU.
  Ranks(const std::string& job, int64_t rank, int64_t size, int64_t threads, double timeoutSeconds,
        const std::string& device);
  Ranks(std::shared_ptr<Transport> transport, int64_t threads, double timeoutSeconds);
  ~Ranks() override;

  // Throws if there are no such ranks.
  static void check(int64_t rank, int64_t size, int64_t threads, double timeoutSeconds);

  int64_t rank() const { return transport_->rank(); }
  int64_t size() const { return transport_->size(); }
  int64_t threads() const { return steps_.workspace->threads(); }
  int64_t bytes() const { return steps_.workspace->bytes() + (beside_ ? beside_->workspace->bytes() : 0); }
  int64_t gradBytes() const { return grads_->bytes(); }
  // Frees the kept memory of gradients that no longer exist.
  void trim() { grads_->trim(); }

  // Where the tensors of layers are.
  const at::Device& device() const { return device_; }
  // Throws unless that is the CPU; `what`: "linear layers".
  void checkOnCpu(std::string_view what) const;

  Transport& transport() { return *transport_; }
  // Steps of one lane run in turn, beside those of the other.
  struct Lane {
    std::shared_ptr<Workspace> workspace;
    std::mutex turn;  // only its holder may use a context of the workspace
  };
  Lane& steps() { return steps_; }
  // The lane of weight gradients; null before makeBeside(), and on a GPU.
  Lane* beside() { return beside_.get(); }
  // Makes it if it does not exist yet. Every rank of the job does.
  void makeBeside();
  // Gradients of weights have their memory from this pool.
  BlockPool& grads() { return *grads_; }
  double timeoutSeconds() const { return timeoutSeconds_; }

  // Replaces a step of any layer of these ranks: it fails at all of them, at the other ranks with this
  // reason. Waits for them. Reports no further error, because the caller already has one.
  void refuse(const std::string& why);
  // The same for a step of weight gradients.
  void refuseBeside(const std::string& why);

  // The largest of the numbers that all ranks give for `what`. Collective.
  int64_t largest(const std::string& what, int64_t number);

  // Throws in a forked child of the process that made this.
  void checkProcess() const;

 private:
  Ranks(std::shared_ptr<Transport> transport, int64_t threads, double timeoutSeconds,
        const std::string& device);
  std::shared_ptr<Workspace> makeWorkspace(const std::string& device) const;

  const int threads_;
  const double timeoutSeconds_;
  const Origin origin_;
  const at::Device device_;
  std::shared_ptr<Transport> transport_;
  Lane steps_;
  std::unique_ptr<Lane> beside_;
  std::shared_ptr<BlockPool> grads_ = BlockPool::create();
};

// Throws if the program cannot be read, or was compiled for another number of ranks.
Program loadProgram(const Ranks& ranks, const std::string& path);

// Makes a layer of these ranks. Collective; errors name `path`, the file of the program.
LayerStatePtr makeLayerState(Ranks& ranks, Program program, const std::string& path,
                             const std::string& arguments);
// A second state of a layer, for steps of its weight gradients, which run beside other steps; on a GPU the
// same one. Collective.
LayerStatePtr makeBesideState(Ranks& ranks, const LayerStatePtr& layer, Program program,
                              const std::string& path);

// The class torch.classes.sluice.Network, with which ranks of several machines become Ranks: in two steps,
// because only Python can exchange the addresses. It makes a Network at each rank, gathers their addresses
// over a process group, and joins with all of them.
class Network : public torch::CustomClassHolder {
 public:
  // Throws if this process has no UCX.
  Network();

  // As hexadecimal digits: strings of Torch are text.
  std::string address() const;

  // Collective, once. The ranks with equal `machines` share memory and must be of one machine and one network
  // namespace; `job` as in Ranks. Throws if a rank is not reached within the time limit; keep this until all
  // ranks have returned (runtime/comm/ucx/ucx.h).
  c10::intrusive_ptr<Ranks> join(const std::string& job, int64_t rank,
                                 const std::vector<std::string>& addresses,
                                 const std::vector<std::string>& machines, int64_t threads,
                                 double timeoutSeconds);

 private:
  std::unique_ptr<UcxEndpoint> endpoint_;
};

}  // namespace sluice

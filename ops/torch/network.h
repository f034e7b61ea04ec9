// Network: the class torch.classes.sluice.Network, with which ranks of several machines become Ranks.
//
// In two steps, because only Python can exchange the addresses: it makes a Network at each rank, gathers
// their addresses over a process group, and joins with all of them.
#pragma once

#include <torch/custom_class.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/torch/ranks.h"
#include "runtime/comm/ucx/ucx.h"

namespace sluice {

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

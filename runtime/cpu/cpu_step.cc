#include "runtime/cpu/cpu_step.h"

#include <algorithm>

#include "runtime/cpu/call_product.h"
#include "runtime/cpu/kernel_call.h"

namespace sluice {

size_t countScratchBytes(const Plan& plan, const ops::KernelSet& kernels) {
  const TaskProgram& p = plan.program();
  size_t most = 0;
  for (const Family& family : p.families) {
    size_t bytes = productScratchBytes(p, kernels, family, p.at(family.space).slotSize);
    // pieces are gathered here if the receiver's memory cannot be written directly
    if (isRemote(p.at(family.space).kind))
      for (BufferId id : family.writes)
        if (id) bytes = std::max<size_t>(bytes, plan.routingShape().slotRows * rowBytes(p.at(id)));
    most = std::max(most, bytes);
  }
  return most;
}

void runTask(const CpuStep& step, const Task& task, std::byte* scratch) {
  if (hasKernelToRun(step, task)) callKernel(step, task, scratch);
  const SymmetricHandle words = step.events->words().handle;
  forSignals(step, task,
             [&](int rank, size_t word, uint64_t n) { step.transport->signal(rank, words, word, n); });
}

}  // namespace sluice

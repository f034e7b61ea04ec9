#include "ops/torch/pending.h"

#include "ops/torch/errors.h"

namespace sluice {

at::Tensor Pending::wait() {
  throwIfFailed(state_.checkProcess());
  throwIfFailed(pending_.wait());
  return tensors_.front();
}

bool Pending::done() const {
  throwIfFailed(state_.checkProcess());
  return pending_.isDone();
}

void Pending::cancel() {
  throwIfFailed(state_.checkProcess());
  pending_.cancel();
}

}  // namespace sluice

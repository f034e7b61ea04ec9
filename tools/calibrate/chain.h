// A program of tasks whose kernels do next to nothing, to measure what a task costs beside its kernel.
#pragma once

#include <memory>
#include <vector>

#include "runtime/api/context.h"

namespace sluice {

// A chain of families in space tokens, one lane each, later ones first: family f scales the `columns` of a
// token and waits for family f - 1 at that token. A slot is one token.
struct ChainShape {
  int cores = 1;
  int families = 8;
  int columns = 8;
  int tokens = 1 << 14;
  int window = 64;
};

// A chain with its memory and workers, ready to run. Resource type, one owner; one thread uses it.
class Chain {
 public:
  static Expected<std::unique_ptr<Chain>> create(const ChainShape& shape, int threads);

  // Runs all tasks once, with the routing of an earlier step, so that bind does next to nothing.
  Status run() { return context_->run("chain"); }

  Context& context() { return *context_; }

 private:
  explicit Chain(const ChainShape& shape);

  LocalRanks ranks_{1};
  std::vector<int32_t> ids_;
  std::vector<BFloat16> in_, out_;
  std::unique_ptr<Context> context_;
};

}  // namespace sluice

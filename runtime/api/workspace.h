// Workspace: what the contexts of one rank share when they take turns, as the layers of a model do.
//
// Resource type, held by shared pointers: that of the caller, and one of each context.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

struct WorkspaceOptions {
  // Workers of this rank. 0: the cores that this process may use, shared with the other ranks of the machine
  // unless its starter gave each rank its own; at least 1.
  int threads = 0;
  bool pin = true;  // bind workers to cores that no other process has taken, where there are enough
};

// Worker threads, and memory that keeps nothing between steps: of each of its regions as much as the largest
// program needs. Thread-safe: contexts of one workspace may be used by different threads, and their steps run
// one at a time, in the order in which they were asked for. Ranks make the same contexts, and ask for the
// same steps, in the same order. The transport outlives it.
class Workspace {
 public:
  static Expected<std::shared_ptr<Workspace>> create(Transport& transport, const WorkspaceOptions& options);
  ~Workspace();

  int threads() const;
  // Of that memory, at this rank: as much as the largest steps so far have touched. Grows only.
  int64_t bytes() const;

 private:
  friend class Context;
  struct Impl;
  explicit Workspace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

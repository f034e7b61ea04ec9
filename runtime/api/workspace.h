// Workspace: the threads and memory that contexts of one rank share when they take turns, as the layers of a
// model do.
//
// Resource type, held by shared pointers of the caller and of each context.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

inline constexpr int kMostThreads = 4096;  // workers of a rank

struct WorkspaceOptions {
  // Workers of this rank. 0: the cores that this process may use, shared with the other ranks of the machine
  // unless the launcher gave each rank its own; at least 1. At most kMostThreads.
  int threads = 0;
  bool pin = true;  // bind workers to cores that no other process has claimed, where there are enough
};

// Worker threads, and memory that keeps nothing between steps: of each of its regions as much as the largest
// program needs. Thread-safe: contexts of one workspace may be used by different threads, and their steps run
// one at a time, in the order in which they were requested. Ranks make the same contexts, and request the
// same steps, in the same order. The transport outlives it.
class Workspace {
 public:
  // Errors: threads out of range, or more than the system has. At that time no other rank waits for this one.
  static Expected<std::shared_ptr<Workspace>> create(Transport& transport, const WorkspaceOptions& options);
  ~Workspace();

  int threads() const;
  // The bytes of that memory at this rank: as much as the largest steps so far have touched. Grows only.
  int64_t bytes() const;

  // Replaces a step of any context that this rank cannot request: the step fails at all other ranks with
  // "rank N: WHY", and the next one is the same step everywhere. Collective, as that step would be, and waits
  // for the others. Errors: the ranks cannot go on. Nothing at one rank.
  Status refuse(const std::string& why, double timeoutSeconds = 30);

  // A step that only compares: whether all ranks are about to do `what` ("make layer a.slp"), with the same
  // digest. Ranks may agree first before they allocate memory (contexts, saved sets), so that none is
  // allocated if one rank refuses. Collective, and waits. Errors: a rank refuses, or is about to do something
  // else; the ranks cannot go on.
  Status agree(std::string_view what, uint64_t digest, double timeoutSeconds = 30);

  // Makes the memory that the contexts made so far need, instead of in their next step. Collective, like
  // creating a context. Errors abort the transport.
  Status reserve();

 private:
  friend class Context;
  struct Impl;
  explicit Workspace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

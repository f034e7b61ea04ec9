// Workspace: the threads and memory that contexts of one rank share when they take turns, like the layers of
// a model.
//
// Resource type, held by shared pointers of the caller and of each context.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"
#include "runtime/exec/device.h"

namespace sluice {

inline constexpr int kMaxThreads = 4096;  // workers of a rank

struct WorkspaceOptions {
  // Workers of this rank, 1 to kMaxThreads. 0: one per core that this process may use; ranks of one machine
  // share the cores unless the launcher gave each rank its own.
  int threads = 0;
  bool pin = true;  // bind workers to cores that no other process has claimed, if there are enough
  // What runs the tasks, instead of CPU threads; `threads` and `pin` then do not matter. Null: CPU threads.
  DeviceMaker device = {};
  // Threads of the caller, which outlive the workspace. A step that runs in the thread that asks for it,
  // which excludes submitted ones, uses them instead of workers of its own, where there are as many at that
  // moment: two sets of threads for the same cores keep each other waiting. Null: none.
  Team* callers = nullptr;
};

// Worker threads, which workspaces of a process share in turn (worker_pool.h), and memory whose content is
// not kept between steps: each region is as large as the largest program needs. Thread-safe: different
// threads may use contexts of one workspace; their steps run one at a time, in the order in which they were
// requested. All ranks must make the same contexts and request the same steps in the same order. The
// transport must outlive it.
class Workspace {
 public:
  // Errors: threads out of range, or more than the system has. No other rank waits for this one meanwhile.
  static Expected<std::shared_ptr<Workspace>> create(Transport& transport, const WorkspaceOptions& options);
  ~Workspace();

  int threads() const;
  // The memory at this rank in bytes: as much as the largest steps so far have touched. Never shrinks.
  int64_t bytes() const;

  // Replaces a step of any context that this rank cannot request: the step fails at all other ranks with
  // "rank N: WHY", and their next steps match again. Collective like that step, and waits for the others.
  // Errors: the ranks cannot continue. Does nothing with one rank.
  Status refuse(const std::string& why, double timeoutSeconds = 30);

  // A step that only compares: whether all ranks are about to do `what` ("make layer a.slp") with the same
  // digest. Ranks can agree before they allocate memory (contexts, saved sets), so that none allocates if one
  // refuses. Collective, and waits. Errors: a rank refuses, or is about to do something else; the ranks
  // cannot continue. `arguments` say what the digest comes from, as "CALL: NAME=VALUE; NAME=VALUE": then the
  // error names the first that differs, as far as they fit in 400 bytes.
  Status agree(std::string_view what, uint64_t digest, double timeoutSeconds = 30,
               std::string_view arguments = {});
  // The largest of the ranks' numbers, which all of them give for `what`. Collective and with errors like
  // agree().
  Expected<int64_t> largest(std::string_view what, int64_t number, double timeoutSeconds = 30);

  // Makes the memory that all contexts made so far need, which otherwise happens in their next step.
  // Collective, like creating a context. Errors abort the transport.
  Status reserve();

 private:
  friend class Context;
  struct Impl;
  explicit Workspace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

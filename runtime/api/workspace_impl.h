// The members of a Workspace: for workspace.cc and context.cc.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/api/workspace.h"
#include "runtime/base/child_process.h"
#include "runtime/exec/device.h"
#include "runtime/exec/meeting.h"
#include "runtime/exec/work_memory.h"

namespace sluice {

// Whether this number of threads may be requested.
Status checkThreads(int threads);

// Serves requests in the order in which they were made. Thread-safe. One thread awaits each ticket, and
// passes the turn on when it is done.
class Turns {
 public:
  uint64_t take();
  // Returns when all earlier tickets have been passed on.
  void await(uint64_t ticket);
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable passed_;
  uint64_t next_ = 0;
  uint64_t now_ = 0;
  int waiting_ = 0;
};

struct Workspace::Impl {
  // For contexts of any programs, or of one program only. Here the runtime chooses its device.
  static Expected<std::unique_ptr<Impl>> make(Transport& transport, const WorkspaceOptions& options);
  static Expected<std::unique_ptr<Impl>> makeFor(const Plan& plan, const LoadOptions& load,
                                                 Transport& transport, const WorkspaceOptions& options);
  Impl(Transport& transport, std::unique_ptr<Device> device, Team* callers);
  ~Impl();

  // A thread that requests a step holds `asking` from its first look at the memory until it has its ticket,
  // so that allocations follow the order of steps, the same at all ranks.
  std::mutex asking;
  MemoryNeeds needs;                         // of all contexts
  std::shared_ptr<const WorkMemory> memory;  // for steps requested now
  Turns turns;
  Status ensureMemory();
  // The meeting of all contexts, made with the first context or when first needed.
  Status ensureMeeting();
  uint32_t contexts = 0;  // number of contexts made so far
  // Aborts the transport: memory that all ranks need could not be made, so they cannot continue.
  Error giveUp(const Error& error) const;
  // Runs `meet`, a meeting of ranks without a step, in its turn; does nothing with one rank.
  Status meetInTurn(const std::function<Status(uint64_t ticket)>& meet);

  // Starts the thread of queue(), if it does not exist yet; called before a step takes its ticket.
  Status startRunner();
  // What that thread does in one turn. Made before the ticket is taken, because no turn may be skipped when
  // memory runs out.
  struct Job {
    std::function<void(uint64_t ticket)> run;
    uint64_t ticket = 0;
  };
  using OneJob = std::list<Job>;
  static OneJob makeJob(std::function<void(uint64_t ticket)> run);
  // Runs the job in the turn of `ticket`. The caller must hold `asking`.
  void queue(uint64_t ticket, OneJob job) noexcept;

  // The members below are used by the thread that has the turn. Each turn is a step, with one ticket and one
  // meeting.
  static uint64_t ticketStep(uint64_t ticket) { return ticket + 1; }
  std::unique_ptr<Meeting> meeting;
  // Refuses the step, which fails at all ranks. Error: the transport was aborted.
  Status refuse(uint64_t ticket, std::string_view entry, const std::string& why, double timeoutSeconds);

  // Used by the thread that has the turn. The memory of a step is kept until another step begins, because it
  // contains outputs.
  void beginStep(const void* context, std::shared_ptr<const WorkMemory> uses);
  void finishStep();  // records whether the step touched more memory than earlier ones
  std::shared_ptr<const WorkMemory> used;
  TouchedMemory touched;
  std::atomic<const void*> last{nullptr};  // the context whose step began last
  std::atomic<int64_t> bytes{0};

  const Origin origin;
  Transport& transport;
  const std::unique_ptr<Device> device;
  Team* const callers;

 private:
  void runQueue();

  std::mutex queueMutex_;
  std::condition_variable queued_;
  std::list<Job> queue_;
  bool stop_ = false;
  std::thread runner_;  // from startRunner() on
};

}  // namespace sluice

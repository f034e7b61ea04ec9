// The members of a Context: for context.cc, and for run_steps.cc, where steps are requested and run.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/api/workspace_impl.h"
#include "runtime/exec/rank.h"
#include "runtime/exec/trace.h"

namespace sluice {

struct Context::Impl {
  // The arguments of a requested step, and its place in the order of steps.
  struct QueuedRun {
    EntryId entry;
    SavedState* saved = nullptr;
    std::shared_ptr<const WorkMemory> memory;
    uint64_t ticket = 0;
    int64_t common = 0;
    std::shared_ptr<StreamMark> mark = {};  // of the caller's stream at the request; null: it has none
    Team* callers = nullptr;                // of a step that runs in the thread that asks for it
  };

  Impl(Program of, Transport& by, const ContextOptions& with, std::shared_ptr<Workspace> in, uint32_t place,
       std::unique_ptr<RankState> state)
      : program(std::move(of)),
        transport(by),
        options(with),
        workspace(std::move(in)),
        number(place),
        rank(std::move(state)) {
    bound.resize(program.tables().buffers.size());
  }

  Workspace::Impl& area() const { return *workspace->impl_; }

  Expected<EntryId> check(std::string_view entry, SavedSet set) const;
  Expected<std::shared_ptr<StreamMark>> markStream() const;
  Expected<QueuedRun> ask(EntryId entry, SavedSet set);
  // Refuses this rank's step, in the step's place, with a reason. kNow: returns when the other ranks know it.
  enum class Refusal : uint8_t { kNow, kInTurn };
  Status refuse(std::string_view entry, SavedSet set, const std::string& why, Refusal when);
  Status step(const QueuedRun& asked, const std::vector<BoundTensor>& tensors,
              StepWatcher* watcher = nullptr);
  Status stepInOrder(const QueuedRun& asked, const std::vector<BoundTensor>& tensors, StepWatcher* watcher);
  Status watchedStep(const QueuedRun& asked, const std::vector<BoundTensor>& tensors, StepWatcher* watcher);
  Expected<TensorView> output(std::string_view name);
  // As monotonicNanoseconds(). `bound` is `end` where the bind failed.
  struct StepTimes {
    int64_t begin = 0, bound = 0, end = 0;
  };
  static constexpr int64_t kNoRouting = -1;
  void recordSpan(SpanKind kind, const QueuedRun& asked, int64_t begin, int64_t end, int64_t routing = 0);
  void recordStep(const QueuedRun& asked, const StepTimes& times);
  // What the failed step returns.
  Error explainFailure(const QueuedRun& asked, const StepTimes& times, Error error);
  std::string writeUnfinished();

  // The error of the transport, if it was aborted.
  Status checkAborted() const {
    if (!transport.isAborted()) return {};
    return Error{fmt::format("{}{}", failed ? "an earlier step failed: " : "", transport.abortMessage())};
  }
  Error fail(const Error& error) {
    failed = transport.isAborted();
    return error;
  }

  // Returns when all submitted steps have ended, so that their results may be read.
  void settle() {
    std::unique_lock lock(submittedMutex);
    settled.wait(lock, [&] { return submitted == 0; });
  }

  const Origin origin;
  std::string hangFile;  // empty: none
  Program program;
  Transport& transport;
  ContextOptions options;
  std::shared_ptr<Workspace> workspace;
  const uint32_t number;  // among the contexts of the workspace

  // Used by the requesting thread.
  std::vector<BoundTensor> bound;  // by buffer
  uint64_t bindings = 0;
  void* stream = nullptr;                      // of the caller; null: none
  std::map<uint32_t, std::string> unbindable;  // by buffer: why its last bind() failed
  std::map<uint32_t, std::vector<std::byte>>
      packed;  // by buffer: packed copies of outputs whose rows have gaps

  // Used by the thread that has the turn.
  std::unique_ptr<RankState> rank;
  RunStats stats;
  std::optional<TraceRecorder> trace;
  TraceRecorder* recorder = nullptr;      // of the step under way: one of the two
  std::optional<TraceRecorder> lastStep;  // for hangFile, while `trace` does not record
  std::optional<Trace> unfinished;        // of `trace`, after it was written to hangFile

  std::atomic<bool> failed{false};  // a step of this context failed, and no other can run
  std::mutex submittedMutex;
  std::condition_variable settled;
  int submitted = 0;  // steps that have not ended
};

}  // namespace sluice

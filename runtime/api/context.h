// The C++ interface: load a program, make a context for each rank, bind tensors, run entries.
//
//   auto program = sluice::Program::load("layer.slp");
//   sluice::LocalRanks ranks(program->ranks());
//   auto context = sluice::Context::create(*program, ranks.transport(0), {});   // one per rank, in its
//   thread
//   (*context)->bind("x", sluice::TensorView::of(x, sluice::DType::kBF16, {tokens, hidden}));
//   (*context)->run("forward");
//
// Errors are values with a message for people. No function throws.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/program.h"
#include "runtime/api/workspace.h"
#include "runtime/base/expected.h"
#include "runtime/base/huge_pages.h"
#include "runtime/comm/transport.h"
#include "runtime/exec/device.h"
#include "runtime/exec/trace_span.h"

namespace sluice {

class Context;

// The transports of `size` ranks that are threads of this process. Outlives its contexts.
class LocalRanks {
 public:
  explicit LocalRanks(int size);
  ~LocalRanks();
  Transport& transport(int rank);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

enum class ExecutorKind : uint8_t {
  kParallel,  // `threads` workers; each tries the head of every lane that it serves
  kSerial,    // one thread, all tasks in key order: the oracle
};

// What the caller promises about a bound tensor.
enum class Weights : uint8_t {
  kOrdinary,  // its content may change between steps
  kConstant,  // its content stays the same until it is bound again: a weight is packed for the kernels once
};

inline constexpr uint32_t kMaxSavedSets = 1024;           // per context
inline constexpr size_t kSpansOfTrace = size_t{1} << 20;  // that a recording keeps per worker by default

// A saved set: the tensors that forward entries save for later ones, and their routing. Sets are made
// collectively when they are first used: ranks may number them differently, but must first use them in the
// same order.
struct SavedSet {
  uint32_t value = 0;
};

// Returns an output of rows that the context owns, by name.
using OutputReader = std::function<Expected<TensorView>(std::string_view name)>;

// Watches one submitted step, in the thread that runs it. Must not throw or call the context.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  // The rows are known, and no rank refuses the step any more.
  virtual void begun() {}
  // The step has ended, and no other has begun: outputs can be read until this returns the step's status.
  virtual Status ended(const Status& ran, const OutputReader& output) = 0;
};

struct ContextOptions {
  int threads = 0;  // workers of this rank; 0: one per core of its share (WorkspaceOptions)
  ExecutorKind executor = ExecutorKind::kParallel;
  double timeoutSeconds = 30;  // time limit of a wait for one event
  bool pin = true;             // bind workers to cores if there are enough
  DeviceMaker device = {};     // as WorkspaceOptions::device

  // Packed weights take as much memory as the weights, once per way in which entries read them.
  int64_t packedBytes = std::numeric_limits<int64_t>::max();  // their limit at this rank; 0: none

  // A file for the trace of a step that fails after ranks had begun it, with "{rank}" in its name; the error
  // names it, and `sluice report` shows it. Each step is recorded then, at the cost of startTrace(). Empty:
  // the file of the variable SLUICE_ON_HANG ("trace" or "trace=FILE"), else none.
  std::string onHang;

  WorkKind work = WorkKind::kAll;  // partial work is for measurements only: outputs are then not the layer's

  // Shared with other contexts of this rank; replaces `threads`, `pin` and `device`. Null: the context has
  // its own.
  std::shared_ptr<Workspace> workspace;

  // A context of the same program and transport, which must outlive this one: both use its saved sets. With a
  // workspace of its own, a step of this context can run at the same time as steps of that one on other sets,
  // such as weight gradients beside a later forward; steps on one set must not. Null: sets of its own.
  const Context* savedOf = nullptr;
};

// The file in the words of --on-hang and SLUICE_ON_HANG, for ContextOptions::onHang: "trace"
// (hang-{rank}.json) or "trace=FILE". Error: other words.
Expected<std::string> parseOnHang(std::string_view text);

struct RunStats {
  double bindSeconds = 0;
  double exchangeSeconds = 0;  // the part of bind until the counts of all ranks have arrived
  double runSeconds = 0;       // including bind
  int64_t tasks = 0;
  int64_t rows = 0;  // R
};

// A step that was submitted and may not have ended. Moved, not copied; its destructor waits. Thread-safe,
// except for moves. It may outlive its context, whose destructor waits for all its steps.
class PendingStep {
 public:
  ~PendingStep();
  PendingStep(PendingStep&&) noexcept;
  PendingStep& operator=(PendingStep&&) noexcept;

  bool isDone() const;
  // Waits, and returns what run() would have returned. May be called again.
  Status wait();
  // A step that has not begun never begins: it is done at once and fails at all other ranks, which stay
  // usable. A running step is aborted at all ranks, and so is the transport. A finished step does not change.
  void cancel();

 private:
  friend class Context;
  class Impl;
  explicit PendingStep(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// One rank's side of a program: memory, workers, and the tensors bound to it. Not copied. Used by one thread
// at a time; bound memory must live until something else is bound or the context ends.
class Context {
 public:
  // Collective: every rank calls it with the same program. It waits for other ranks only if the transport's
  // allocate() does. Options may differ between ranks. Errors abort the transport, because the other ranks
  // cannot continue without this one; only options out of range do not.
  static Expected<std::unique_ptr<Context>> create(Program program, Transport& transport,
                                                   const ContextOptions& options);
  ~Context();

  // Binds an input or output by its name. Errors: unknown name, type, shape, an address that is not a
  // multiple of the element size (any multiple is allowed). T may be 0 to max_tokens and must be the same in
  // all tensors of a run. `weights` matters for weights of products. If bind fails, the tensor is no longer
  // bound: runs that need it fail with the same message until it is bound again. So the error may be handled
  // here or at the run, but a rank that then does not run must call refuse().
  Status bind(std::string_view name, const TensorView& tensor, Weights weights = Weights::kOrdinary);

  // Has the same effect as a bind that failed with this message; for callers that check tensors themselves.
  void unbind(std::string_view name, const std::string& why);

  // Has the rows of an output, one with extent R that tasks of this rank write, written to memory of the
  // caller instead of the context's own: in each step that writes them, `memory` is asked once for room for
  // all rows, without gaps, as soon as their number is known. If it fails, the step is refused at all ranks,
  // for which they meet once more; a caller whose function never fails says so (`mayFail` false), which saves
  // that meeting: if it fails nevertheless, the transport is aborted. Null: the context's memory again.
  // Errors: an unknown name, a tensor that is not such an output.
  Status bindRows(std::string_view name, RowMemory memory, bool mayFail = true);

  // The caller's stream for steps that are requested from now on: a cudaStream_t, with a device whose tasks
  // run on a GPU. Null: none (the default stream is cudaStreamLegacy). A step then begins after what was
  // enqueued in the stream before run() or submit(), and what is enqueued in it after run(), or
  // PendingStep::wait(), has returned begins after the step. run() still returns when the step has ended.
  // Bound memory, also the memory of expert ids, may be written by the stream until then; the stream must
  // live until the step has ended. Errors: CPU threads; a stream that is being captured into a graph, for
  // which runs are refused, too: a step reads its routing on the host.
  Status setStream(void* stream);

  // Runs one entry; collective. Errors: unbound tensors; ids out of range or repeated; saved tensors that do
  // not exist yet; a peer that failed, died or left; a wait past the time limit (the message has rank, core,
  // task, event, have and need, and what is missing). Errors found before any rank writes to another leave
  // the context usable. Other errors abort the transport, and every later run on it fails. After it returns,
  // nothing uses bound memory; outputs of a failed run are undefined.
  //
  // A step takes place at all ranks or at none. If one rank refuses, for example because an entry or set does
  // not exist, the step fails at all ranks with "rank N: ...", and their next steps match again. If a rank
  // does not request the step, the others wait for it up to the time limit. A refused step that would fill a
  // set leaves it empty.
  //
  // An entry that saves fills the set; one that reads saved tensors reads the set and uses its routing.
  // `common` is a number of the caller that must be the same at all ranks; if it is not, the step is refused.
  Status run(std::string_view entry, SavedSet saved = {}, int64_t common = 0);

  // Like run(), but returns at once. Uses the tensors that are bound now. Steps of a workspace run in the
  // order of the run() and submit() calls of all its contexts; all ranks call them in the same order. A step
  // that is refused here is refused at the other ranks in its turn.
  Expected<PendingStep> submit(std::string_view entry, SavedSet saved = {},
                               std::shared_ptr<StepWatcher> watcher = nullptr);

  // Replaces run() for a caller that finds itself that it cannot take part, for example because it has no
  // input: the step fails at all other ranks with "rank N: WHY". With one rank it does nothing. `saved` is
  // the set that the step would have used. Collective like run(), and waits as long. Errors: the ranks cannot
  // continue.
  Status refuse(const std::string& why, SavedSet saved = {});
  // Replaces submit(): returns at once, and the other ranks receive the refusal in the turn of the step.
  Status refuseSubmitted(const std::string& why, SavedSet saved = {});

  // The memory of all saved sets of this context at this rank that steps have needed so far.
  int64_t savedBytes() const;

  // Sets the kernels that later runs call, overriding ContextOptions::work: to compare runs of all work and
  // of parts in turn.
  void setWork(WorkKind work);

  // What the last run sent to other ranks, or would have sent if all work ran; zero before the first run.
  Traffic traffic() const;

  // An output with extent rows, which the context owns; valid until the next run.
  Expected<TensorView> output(std::string_view name);

  // Rows of each expert of this rank in the last run, in memory order; empty before the first run.
  std::vector<int32_t> expertRows() const;

  const RunStats& lastRun() const;
  PackedWeights packedWeights() const;

  // Records runs from now on, at most `spansPerWorker` spans per worker: a full recording drops its oldest.
  // Recording costs 20 to 60 ns per task; its memory is allocated between runs.
  void startTrace(size_t spansPerWorker = kSpansOfTrace);
  // The spans since startTrace() or the last call; empty if nothing is recorded. After a failed run they
  // include its own, and why it failed (Trace::failed).
  Trace takeTrace();
  void stopTrace();

 private:
  struct Impl;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

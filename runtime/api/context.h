// The C++ interface: load a program, make a context for each rank, bind tensors, run entries.
//
//   auto program = sluice::Program::load("layer.slp");
//   sluice::LocalRanks ranks(program->ranks());
//   auto context = sluice::Context::create(*program, ranks.transport(0), {});   // one a rank, in its thread
//   (*context)->bind("x", sluice::TensorView::of(x, sluice::DType::kBF16, {tokens, hidden}));
//   (*context)->run("forward");
//
// Errors are values with a message for people. No function throws.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/local_ranks.h"
#include "runtime/api/pending_step.h"
#include "runtime/api/program.h"
#include "runtime/api/workspace.h"
#include "runtime/base/huge_pages.h"
#include "runtime/exec/trace_span.h"
#include "runtime/exec/work.h"

namespace sluice {

enum class ExecutorKind : uint8_t {
  kParallel,  // `threads` workers, each tries the head of every lane it serves
  kSerial,    // one thread, all tasks in key order: the oracle
};

// What the caller promises of a bound tensor.
enum class Weights : uint8_t {
  kOrdinary,  // its content may change between steps
  kConstant,  // it stays until the tensor is bound again: a weight is packed for the kernels once
};

inline constexpr uint32_t kMostSavedSets = 1024;  // of a context

// A set of what forward entries save for later ones: the saved tensors and their routing. Sets are made,
// collectively, when they are first used: ranks may number them differently, but first use them in the same
// order.
struct SavedSet {
  uint32_t value = 0;
};

struct ContextOptions {
  int threads = 0;  // workers of this rank; 0: its share of the cores (WorkspaceOptions)
  ExecutorKind executor = ExecutorKind::kParallel;
  double timeoutSeconds = 30;  // longest wait for one event
  bool pin = true;             // bind workers to cores, where there are enough

  // Packed weights take as much memory as the weights, for each way in which entries read them.
  int64_t packedBytes = std::numeric_limits<int64_t>::max();  // at most so much at this rank; 0: none
  bool packEachStep = false;  // pack ordinary weights too, once a step, where several tasks share a panel

  WorkKind work = WorkKind::kAll;  // parts of it are for measuring only: outputs are not the layer's then

  // Shared with other contexts of this rank, instead of `threads` and `pin`; null: the context has its own.
  std::shared_ptr<Workspace> workspace;
};

struct RunStats {
  double bindSeconds = 0;
  double exchangeSeconds = 0;  // of bind: until the counts of all ranks are there
  double runSeconds = 0;       // bind included
  int64_t tasks = 0;
  int64_t rows = 0;  // R
};

// The packed weights of a rank.
struct PackedWeights {
  int64_t bytes = 0;        // memory taken
  int64_t panels = 0;       // pieces of weights that are packed as they are now
  int64_t withoutRoom = 0;  // pieces that are not, for ContextOptions::packedBytes
};

// One rank's side of a program: memory, workers, and the tensors bound to it. Not copied. One thread at a
// time calls it; bound memory must live until it is bound anew or the context ends.
class Context {
 public:
  // Collective: every rank calls it, with the same program; it waits for nobody where the transport's
  // allocate() does not. Options may differ between ranks. But for options out of range, errors abort the
  // transport: the other ranks cannot go on.
  static Expected<std::unique_ptr<Context>> create(Program program, Transport& transport,
                                                   const ContextOptions& options);
  ~Context();

  // Binds an input or output by its name. Errors: unknown name, type, shape, memory at an address that is no
  // multiple of an element's size (any such does). T is free from 0 to
  // max_tokens, and must be the same in all tensors of a run. `weights` matters for weights of products.
  // A tensor whose bind fails is not bound any more: runs that need it fail with the same message until it is
  // bound. So the error may be looked at here or there, but a rank that does not run then must call refuse().
  Status bind(std::string_view name, const TensorView& tensor, Weights weights = Weights::kOrdinary);

  // As a bind that failed with this message, for callers that look at tensors before.
  void unbind(std::string_view name, const std::string& why);

  // Runs one entry; collective. Errors: unbound tensors, ids out of range or repeated, an entry whose
  // saved tensors are not there yet, a peer that failed, has died or left, a wait past the limit (rank, core,
  // task, event, have and need, what is missing). What is found before ranks write to each other is held
  // against nobody: the next run may go well. Other errors abort the transport, and no run on it goes on.
  // When it returns, nothing touches bound memory any more; outputs of a failed run hold anything.
  //
  // A step takes place at all ranks or at none. Whatever one rank refuses, an entry or set that is not there
  // included, fails the step at all of them with "rank N: ..."; the next one is the same step everywhere. A
  // rank that asks for no step where the others do is waited for, for the time limit. A refused step that
  // fills a set leaves it empty.
  //
  // An entry that saves fills the set, one that reads what others save reads that set, and uses its routing.
  Status run(std::string_view entry, SavedSet saved = {});

  // As run(), but returns at once. The tensors are those bound now. Steps of a workspace run in the order in
  // which run() and submit() of all its contexts were called; ranks call them in the same order.
  // One that is refused here is refused at the other ranks in its turn.
  Expected<PendingStep> submit(std::string_view entry, SavedSet saved = {});

  // In the place of run(), for a caller that found by itself that it cannot take part, as one that has no
  // input: the step fails at all other ranks with "rank N: WHY", and nothing happens at a rank that is alone.
  // `saved` is the set that the step would have used. Collective as run(), and waits as long. Errors: the
  // ranks cannot go on.
  Status refuse(const std::string& why, SavedSet saved = {});
  // In the place of submit(): returns at once, and the others are told in the turn of the step.
  Status refuseSubmitted(const std::string& why, SavedSet saved = {});

  // Memory of all saved sets of this context, at this rank, as far as steps so far needed it.
  int64_t savedBytes() const;

  // Which kernels the runs to come call, instead of ContextOptions::work: runs of all and of parts take turns
  // where they are compared.
  void setWork(WorkKind work);

  // What the last run sent to other ranks, or would have sent with all its work; nothing before the first.
  Traffic traffic() const;

  // An output of extent rows, owned by the context; valid until the next run.
  Expected<TensorView> output(std::string_view name);

  // Rows of each expert of this rank in the last run, in the order in which they lie; empty before the first.
  std::vector<int32_t> expertRows() const;

  const RunStats& lastRun() const;
  PackedWeights packedWeights() const;

  // From now on runs are recorded, at most `spansPerWorker` spans of each worker: a full recording drops its
  // oldest. A recording costs some 20 to 60 ns a task, and between runs memory for it is allocated.
  void startTrace(size_t spansPerWorker = size_t{1} << 20);
  // What was recorded since startTrace() or the last call; empty where nothing is recorded.
  Trace takeTrace();
  void stopTrace();

 private:
  struct Impl;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

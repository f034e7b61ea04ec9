#include "runtime/api/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "runtime/api/pending_step_impl.h"
#include "runtime/api/workspace_impl.h"
#include "runtime/base/clock.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/rank.h"

namespace sluice {
namespace {

// As `rank` has it to bind.
std::string dimText(const TaskProgram& program, int rank, const Dim& dim) {
  switch (dim.extent) {
    case Extent::kFixed:
      return std::to_string(dim.size);
    case Extent::kTokens:
      return "T";
    case Extent::kRows:
      return "R";
    case Extent::kPairs:
      return "P";
    case Extent::kExperts:
      return std::to_string(program.expertsOf(rank));
  }
  return "?";
}

std::string shapeText(const TaskProgram& program, int rank, const std::vector<Dim>& shape) {
  std::vector<std::string> dims;
  for (const Dim& dim : shape) dims.push_back(dimText(program, rank, dim));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::optional<BufferId> findTensor(const TaskProgram& program, std::string_view name) {
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.name == name && (buffer.role == Role::kInput || buffer.role == Role::kOutput))
      return BufferId{b};
  }
  return std::nullopt;
}

Error unknownTensor(const TaskProgram& program, std::string_view name) {
  std::vector<std::string> known;
  for (const Buffer& buffer : program.buffers)
    if (buffer.role == Role::kInput || buffer.role == Role::kOutput) known.push_back(buffer.name);
  return Error{
      fmt::format("the program has no tensor '{}', expected one of: {}", name, fmt::join(known, ", "))};
}

bool fits(const TaskProgram& program, int rank, const Dim& dim, int64_t size) {
  if (dim.extent == Extent::kFixed) return size == dim.size;
  return dim.extent == Extent::kExperts ? size == program.expertsOf(rank) : size >= 0;
}

Status checkTensor(const TaskProgram& program, int rank, const Buffer& buffer, const TensorView& tensor) {
  if (tensor.type != buffer.type)
    return Error{fmt::format("tensor '{}' has type {}, expected {}", buffer.name, dtypeName(tensor.type),
                             dtypeName(buffer.type))};
  bool all = tensor.shape.size() == buffer.shape.size();
  for (size_t d = 0; all && d < tensor.shape.size(); ++d)
    all = fits(program, rank, buffer.shape[d], tensor.shape[d]);
  if (!all) {
    const bool ofRank = buffer.shape.front().extent == Extent::kExperts;
    return Error{fmt::format("tensor '{}' has shape [{}], expected {}{}", buffer.name,
                             fmt::join(tensor.shape, ", "), shapeText(program, rank, buffer.shape),
                             ofRank ? fmt::format(" at rank {}", rank) : "")};
  }
  if (buffer.shape.front().extent == Extent::kTokens && tensor.shape[0] > program.maxTokens)
    return Error{fmt::format("tensor '{}' has {} tokens, but the program was compiled for at most {}",
                             buffer.name, tensor.shape[0], program.maxTokens)};
  if (!tensor.data && tensor.elements() > 0)
    return Error{fmt::format("tensor '{}' has no data", buffer.name)};
  return {};
}

Status checkOptions(const Transport& transport, const ContextOptions& options) {
  if (transport.isInherited())
    return Error{"the transport was made before this process was forked: make it anew here"};
  if (options.threads < 0)
    return Error{fmt::format("{} threads asked for, expected at least 1 (or 0 for this machine's share)",
                             options.threads)};
  if (!(options.timeoutSeconds > 0))
    return Error{fmt::format("a time limit of {} s, expected more than 0", options.timeoutSeconds)};
  if (options.packedBytes < 0)
    return Error{fmt::format("{} bytes of packed weights, expected 0 or more", options.packedBytes)};
  return {};
}

}  // namespace

struct Context::Impl {
  // What a step was asked for with, and its place in the order of steps.
  struct Asked {
    EntryId entry;
    SavedState* saved = nullptr;
    std::shared_ptr<const WorkMemory> memory;
    uint64_t ticket = 0;
  };

  Impl(Program of, Transport& by, const ContextOptions& with, std::shared_ptr<Workspace> in,
       std::unique_ptr<RankState> state)
      : program(std::move(of)),
        transport(by),
        options(with),
        workspace(std::move(in)),
        rank(std::move(state)) {
    if (options.executor == ExecutorKind::kParallel) parallel.emplace(rank->plan(), area().workers);
    bound.resize(program.tables().buffers.size());
  }

  Workspace::Impl& area() const { return *workspace->impl_; }

  Expected<EntryId> check(std::string_view entry, SavedSet set) const;
  Expected<Asked> ask(EntryId entry, SavedSet set);
  Status step(const Asked& asked, const std::vector<BoundTensor>& tensors);
  Expected<int64_t> execute(const Step& step, const WorkMemory& memory);
  void recordStep(EntryId entry, int64_t begin, int64_t bound, int64_t end);

  // Of the transport, where it was aborted.
  Status checkAborted() const {
    if (!transport.isAborted()) return {};
    return Error{fmt::format("{}{}", failed ? "an earlier step failed: " : "", transport.abortMessage())};
  }
  Error fail(const Error& error) {
    failed = transport.isAborted();
    return error;
  }

  // Returns when all steps that were submitted are over: what they use may be looked at then.
  void settle() {
    std::unique_lock lock(submittedMutex);
    settled.wait(lock, [&] { return submitted == 0; });
  }

  const Origin origin;
  Program program;
  Transport& transport;
  ContextOptions options;
  std::shared_ptr<Workspace> workspace;

  // By who asks.
  std::vector<BoundTensor> bound;  // by buffer
  uint64_t bindings = 0;
  std::map<uint32_t, std::vector<std::byte>> packed;  // by buffer: outputs whose rows lie apart

  // By who has the turn.
  std::unique_ptr<RankState> rank;
  std::optional<ParallelExecutor> parallel;
  RunStats stats;
  std::optional<TraceRecorder> trace;

  std::atomic<bool> failed{false};  // a step of this context, and no other can run
  std::mutex submittedMutex;
  std::condition_variable settled;
  int submitted = 0;  // steps that are not over
};

Expected<EntryId> Context::Impl::check(std::string_view name, SavedSet set) const {
  if (Status ours = origin.check("the context"); !ours) return ours.error();
  const auto& entries = program.tables().entries;
  uint32_t entry = 0;
  while (entry < entries.size() && entries[entry].name != name) ++entry;
  if (entry == entries.size()) {
    std::vector<std::string> known;
    for (const Entry& e : entries) known.push_back(e.name);
    return Error{
        fmt::format("the program has no entry '{}', expected one of: {}", name, fmt::join(known, ", "))};
  }
  if (set.value >= kMostSavedSets)
    return Error{fmt::format("saved set {}, expected 0 to {}", set.value, kMostSavedSets - 1)};
  return EntryId{entry};
}

// Whoever calls this holds `asking` of the workspace.
Expected<Context::Impl::Asked> Context::Impl::ask(EntryId entry, SavedSet set) {
  if (Status going = checkAborted(); !going) return going.error();
  if (Status there = area().ensureMemory(); !there) return fail(rank->explain(there.error()));
  auto saved = rank->savedState(set.value);
  if (!saved) return fail(saved.error());
  return Asked{entry, *saved, area().memory, area().turns.take()};
}

// Whoever calls this has the turn.
Status Context::Impl::step(const Asked& asked, const std::vector<BoundTensor>& tensors) {
  if (Status going = checkAborted(); !going) return going;
  const int64_t begin = monotonicNanoseconds();
  const StepRequest request{asked.entry, asked.saved, asked.memory.get(), &tensors};
  auto step = rank->bindStep(request, options.timeoutSeconds);
  if (!step) return fail(step.error());
  area().beginStep(this, asked.memory);
  const int64_t bound = monotonicNanoseconds();
  auto tasks = execute(**step, *asked.memory);
  if (!tasks) return fail(tasks.error());
  rank->finishStep(request, area().touched);
  area().finishStep();
  const int64_t end = monotonicNanoseconds();
  const auto [exchangeBegin, exchangeEnd] = rank->lastExchange();
  stats = {(bound - begin) * 1e-9, (exchangeEnd - exchangeBegin) * 1e-9, (end - begin) * 1e-9, *tasks,
           (*step)->tables->rows};
  if (trace) recordStep(asked.entry, begin, bound, end);
  return {};
}

Expected<int64_t> Context::Impl::execute(const Step& step, const WorkMemory& memory) {
  TraceRecorder* const recorder = trace ? &*trace : nullptr;
  if (parallel) return parallel->run(step, *memory.scratch, options.timeoutSeconds, recorder);
  return runSerial(step, memory.scratch->front(), options.timeoutSeconds, recorder);
}

// Spans of the rank: a run holds its bind, and that its exchange.
void Context::Impl::recordStep(EntryId entry, int64_t begin, int64_t bound, int64_t end) {
  const auto record = [&](SpanKind kind, int64_t first, int64_t last) {
    TraceSpan span;
    span.begin = first;
    span.end = last;
    span.kind = kind;
    span.entry = entry;
    trace->rank().add(span);
  };
  trace->rank().makeRoom(3);
  record(SpanKind::kRun, begin, end);
  record(SpanKind::kBind, begin, bound);
  record(SpanKind::kExchange, rank->lastExchange().first, rank->lastExchange().second);
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Context::~Context() {
  // in a forked child neither its threads nor what other ranks see of it are there to be ended
  if (impl_->origin.isForked())
    static_cast<void>(impl_.release());
  else
    impl_->settle();
}

Expected<std::unique_ptr<Context>> Context::create(Program program, Transport& transport,
                                                   const ContextOptions& options) {
  if (Status sane = checkOptions(transport, options); !sane) return sane.error();
  if (options.workspace) {
    const Workspace::Impl& area = *options.workspace->impl_;
    if (Status ours = area.origin.check("the workspace"); !ours) return ours.error();
    if (&area.transport != &transport) return Error{"the workspace was made for another transport"};
  }
  // the other ranks cannot go on without this one
  const auto giveUp = [&](const Error& error) {
    transport.abort(fmt::format("rank {}: {}", transport.rank(), error.message));
    return error;
  };
  if (transport.size() != program.ranks())
    return giveUp({fmt::format("the program was compiled for {} ranks, but the transport has {}",
                               program.ranks(), transport.size())});
  auto kernels = ops::selectKernels();
  if (!kernels) return giveUp(kernels.error());

  const auto plan = std::make_shared<const Plan>(Plan::make(program.verified(), **kernels));
  std::shared_ptr<Workspace> workspace = options.workspace;
  if (!workspace) {
    const int useful = options.executor == ExecutorKind::kSerial ? 0 : ParallelExecutor::usefulThreads(*plan);
    workspace.reset(new Workspace(std::make_unique<Workspace::Impl>(
        transport, WorkspaceOptions{options.threads, options.pin}, useful)));
  }
  Workspace::Impl& area = *workspace->impl_;
  std::lock_guard lock(area.asking);
  auto rank = RankState::create(plan, transport, {options.packedBytes, options.packEachStep});
  if (!rank) return rank.error();
  (*rank)->setWork(options.work);
  area.needs.add((*rank)->regions().needs);
  // of a workspace of several contexts it is made for the first step: in one piece for all of them
  if (!options.workspace)
    if (Status made = area.ensureMemory(); !made) return (*rank)->explain(made.error());
  return std::unique_ptr<Context>(new Context(std::make_unique<Impl>(
      std::move(program), transport, options, std::move(workspace), std::move(*rank))));
}

Status Context::bind(std::string_view name, const TensorView& tensor, Weights weights) {
  const TaskProgram& program = impl_->program.tables();
  const auto id = findTensor(program, name);
  if (!id) return unknownTensor(program, name);
  const Buffer& buffer = program.at(*id);
  if (buffer.region)
    return Error{fmt::format("tensor '{}' is owned by the context: look at it with output()", name)};
  if (Status fits = checkTensor(program, impl_->transport.rank(), buffer, tensor); !fits) return fits;
  impl_->bound[id->value] = {static_cast<std::byte*>(tensor.data), tensor.shape.empty() ? 1 : tensor.shape[0],
                             ++impl_->bindings, weights == Weights::kConstant};
  return {};
}

Status Context::run(std::string_view name, SavedSet saved) {
  const auto entry = impl_->check(name, saved);
  if (!entry) return entry.error();
  std::unique_lock lock(impl_->area().asking);
  auto asked = impl_->ask(*entry, saved);
  lock.unlock();
  if (!asked) return asked.error();
  Turns& turns = impl_->area().turns;
  turns.await(asked->ticket);
  Status status = impl_->step(*asked, impl_->bound);
  turns.pass();
  return status;
}

Expected<PendingStep> Context::submit(std::string_view name, SavedSet saved) {
  const auto entry = impl_->check(name, saved);
  if (!entry) return entry.error();
  auto pending = std::make_shared<PendingStep::Impl>(impl_->transport, std::string(name));
  std::lock_guard lock(impl_->area().asking);
  auto asked = impl_->ask(*entry, saved);
  if (!asked) return asked.error();
  {
    std::lock_guard count(impl_->submittedMutex);
    ++impl_->submitted;
  }
  const auto job = [context = impl_.get(), asked = std::move(*asked), bound = impl_->bound, pending] {
    if (pending->begin())
      pending->finish(context->step(asked, bound));
    else
      // the others are told in its place, so that they fail this step and not a later one
      static_cast<void>(
          context->rank->refuseStep(asked.entry, pending->cancelled(), context->options.timeoutSeconds));
    context->area().turns.pass();
    // under the lock: the context may end as soon as it is let go
    std::lock_guard count(context->submittedMutex);
    if (--context->submitted == 0) context->settled.notify_all();
  };
  impl_->area().queue(asked->ticket, job);
  return PendingStep(pending);
}

Expected<TensorView> Context::output(std::string_view name) {
  if (Status ours = impl_->origin.check("the context"); !ours) return ours.error();
  impl_->settle();
  const TaskProgram& program = impl_->program.tables();
  const auto id = findTensor(program, name);
  if (!id) return unknownTensor(program, name);
  const Buffer& buffer = program.at(*id);
  if (!buffer.region)
    return Error{fmt::format("tensor '{}' is in the caller's memory, where it was bound", name)};
  const Step& step = impl_->rank->step();
  if (!step.plan) return Error{fmt::format("tensor '{}' is not there before a run", name)};
  if (!program.at(buffer.region).saved && impl_->area().last.load(std::memory_order_relaxed) != impl_.get())
    return Error{fmt::format("tensor '{}' is gone: another context of the workspace has run since", name)};
  const BufferAddress& address = step.at(*id);
  TensorView view{buffer.type, {step.tables->rows}, address.data};
  for (size_t d = 1; d < buffer.shape.size(); ++d) view.shape.push_back(buffer.shape[d].size);
  const int64_t rowBytes = view.shape[0] > 0 ? view.bytes() / view.shape[0] : 0;
  if (view.shape[0] == 0 || rowBytes == address.stride) return view;
  // rows lie apart in their region: the caller gets them packed
  auto& packed = impl_->packed[id->value];
  packed.resize(view.bytes());
  for (int64_t row = 0; row < view.shape[0]; ++row)
    std::memcpy(packed.data() + row * rowBytes, address.data + row * address.stride, rowBytes);
  view.data = packed.data();
  return view;
}

void Context::setWork(WorkKind work) {
  if (impl_->origin.isForked()) return;
  impl_->settle();
  impl_->rank->setWork(work);
}

Traffic Context::traffic() const {
  if (impl_->origin.isForked()) return {};
  impl_->settle();
  const Step& step = impl_->rank->step();
  return step.plan ? trafficOf(step) : Traffic{};
}

std::vector<int32_t> Context::expertRows() const {
  if (impl_->origin.isForked()) return {};
  impl_->settle();
  const Step& step = impl_->rank->step();
  if (!step.plan) return {};
  const std::vector<int32_t>& first = step.tables->expertRow;
  std::vector<int32_t> rows;
  for (size_t e = 0; e + 1 < first.size(); ++e) rows.push_back(first[e + 1] - first[e]);
  return rows;
}

int64_t Context::savedBytes() const { return impl_->rank->savedBytes(); }

const RunStats& Context::lastRun() const {
  if (!impl_->origin.isForked()) impl_->settle();
  return impl_->stats;
}

PackedWeights Context::packedWeights() const {
  if (impl_->origin.isForked()) return {};
  impl_->settle();
  const PanelStats stats = impl_->rank->panelStats();
  return {stats.bytes, stats.panels, stats.withoutRoom};
}

void Context::startTrace(size_t spansPerWorker) {
  if (impl_->origin.isForked()) return;
  impl_->settle();
  impl_->trace.emplace(impl_->parallel ? impl_->parallel->threads() : 1, spansPerWorker);
}

Trace Context::takeTrace() {
  if (impl_->origin.isForked()) return {};
  impl_->settle();
  return impl_->trace ? impl_->trace->take() : Trace{};
}

void Context::stopTrace() {
  if (impl_->origin.isForked()) return;
  impl_->settle();
  impl_->trace.reset();
}

}  // namespace sluice

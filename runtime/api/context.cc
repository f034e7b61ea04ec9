#include "runtime/api/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/comm/in_process.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/rank.h"
#include "runtime/program/codec.h"

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

}  // namespace

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

Expected<Program> Program::load(const std::string& path) {
  auto program = readProgram(path);
  if (!program) return program.error();
  auto verified = fromTaskProgram(std::move(*program));
  if (!verified) return Error{fmt::format("{}: error: {}", path, verified.error().message)};
  return verified;
}

Expected<Program> Program::fromBytes(std::span<const std::byte> bytes) {
  auto program = decode(bytes);
  if (!program) return program.error();
  return fromTaskProgram(std::move(*program));
}

Expected<Program> Program::fromTaskProgram(TaskProgram program) {
  auto verified = verify(std::move(program));
  if (!verified) return verified.error();
  Program result;
  result.verified_ = std::make_shared<const VerifiedProgram>(std::move(*verified));
  return result;
}

struct LocalRanks::Impl {
  explicit Impl(int size) : group(size) {}
  InProcessGroup group;
};

LocalRanks::LocalRanks(int size) : impl_(std::make_unique<Impl>(size)) {}
LocalRanks::~LocalRanks() = default;
Transport& LocalRanks::transport(int rank) { return impl_->group.transport(rank); }

struct Workspace::Impl {
  int threads = 0;
};

Workspace::Workspace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Workspace::~Workspace() = default;
int Workspace::threads() const { return impl_->threads; }
int64_t Workspace::bytes() const { return 0; }

Expected<std::shared_ptr<Workspace>> Workspace::create(Transport& transport,
                                                       const WorkspaceOptions& options) {
  if (options.threads < 0)
    return Error{fmt::format("{} threads asked for, expected at least 1 (or 0 for this machine's share)",
                             options.threads)};
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, processingUnits() / transport.localRanks());
  return std::shared_ptr<Workspace>(new Workspace(std::unique_ptr<Impl>(new Impl{threads})));
}

struct PendingStep::Impl {
  Status status;
};

PendingStep::PendingStep(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
PendingStep::~PendingStep() = default;
PendingStep::PendingStep(PendingStep&&) noexcept = default;
PendingStep& PendingStep::operator=(PendingStep&&) noexcept = default;
bool PendingStep::isDone() const { return true; }
Status PendingStep::wait() { return impl_->status; }
void PendingStep::cancel() {}

struct Context::Impl {
  Program program;
  Transport& transport;
  ContextOptions options;
  std::unique_ptr<RankState> rank;
  std::optional<ParallelExecutor> parallel;
  std::optional<Scratch> serialScratch;
  RunStats stats;
  std::map<uint32_t, std::vector<std::byte>> packed;  // by buffer: outputs whose rows lie apart

  std::optional<TraceRecorder> trace;
  bool failed = false;  // a step of this context, and no other can run

  Error fail(const Error& error) {
    failed = transport.isAborted();
    return error;
  }

  Expected<int64_t> execute(const Step& step) {
    TraceRecorder* const recorder = trace ? &*trace : nullptr;
    if (parallel) return parallel->run(step, options.timeoutSeconds, recorder);
    return runSerial(step, *serialScratch, options.timeoutSeconds, recorder);
  }

  // Of the rank; a run holds its bind, and that its exchange.
  void record(SpanKind kind, EntryId entry, int64_t begin, int64_t end) {
    TraceSpan span;
    span.begin = begin;
    span.end = end;
    span.kind = kind;
    span.entry = entry;
    trace->rank().add(span);
  }
};

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;

Expected<std::unique_ptr<Context>> Context::create(Program program, Transport& transport,
                                                   const ContextOptions& asked) {
  ContextOptions options = asked;
  if (options.workspace) options.threads = options.workspace->threads();
  if (options.threads < 0)
    return Error{fmt::format("{} threads asked for, expected at least 1 (or 0 for this machine's share)",
                             options.threads)};
  if (!(options.timeoutSeconds > 0))
    return Error{fmt::format("a time limit of {} s, expected more than 0", options.timeoutSeconds)};
  if (options.packedBytes < 0)
    return Error{fmt::format("{} bytes of packed weights, expected 0 or more", options.packedBytes)};
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
  auto rank = RankState::create(plan, transport, {options.packedBytes, options.packEachStep});
  if (!rank) return rank.error();
  (*rank)->setWork(options.work);
  std::unique_ptr<Impl> impl(
      new Impl{std::move(program), transport, options, std::move(*rank), {}, {}, {}, {}, {}});
  if (options.executor == ExecutorKind::kSerial) {
    auto scratch = Scratch::allocate(plan->scratchBytes());
    if (!scratch) return giveUp(scratch.error());
    impl->serialScratch.emplace(std::move(*scratch));
  } else {
    const int units = processingUnits();
    const int sharing = transport.localRanks();
    const int threads = options.threads > 0 ? options.threads : std::max(1, units / sharing);
    const bool enough = threads * sharing <= units;
    auto scratch = ParallelExecutor::allocateScratch(*plan, threads);
    if (!scratch) return giveUp(scratch.error());
    const int firstUnit = options.pin && enough ? transport.localRank() * threads : -1;
    impl->parallel.emplace(*plan, std::move(*scratch), firstUnit);
  }
  return std::unique_ptr<Context>(new Context(std::move(impl)));
}

Status Context::bind(std::string_view name, const TensorView& tensor, Weights weights) {
  const TaskProgram& program = impl_->program.tables();
  const auto id = findTensor(program, name);
  if (!id) return unknownTensor(program, name);
  const Buffer& buffer = program.at(*id);
  if (buffer.region)
    return Error{fmt::format("tensor '{}' is owned by the context: look at it with output()", name)};
  if (Status fits = checkTensor(program, impl_->transport.rank(), buffer, tensor); !fits) return fits;
  impl_->rank->bindTensor(*id, static_cast<std::byte*>(tensor.data),
                          tensor.shape.empty() ? 1 : tensor.shape[0], weights == Weights::kConstant);
  return {};
}

Expected<PendingStep> Context::submit(std::string_view entry, SavedSet saved) {
  return PendingStep(std::make_shared<PendingStep::Impl>(PendingStep::Impl{run(entry, saved)}));
}

int64_t Context::savedBytes() const { return 0; }

Status Context::run(std::string_view entryName, SavedSet saved) {
  if (saved.value != 0) return Error{fmt::format("saved set {}, expected 0", saved.value)};
  const TaskProgram& program = impl_->program.tables();
  uint32_t entry = 0;
  while (entry < program.entries.size() && program.entries[entry].name != entryName) ++entry;
  if (entry == program.entries.size()) {
    std::vector<std::string> known;
    for (const Entry& e : program.entries) known.push_back(e.name);
    return Error{
        fmt::format("the program has no entry '{}', expected one of: {}", entryName, fmt::join(known, ", "))};
  }
  if (impl_->transport.isAborted())
    return Error{fmt::format("{}{}", impl_->failed ? "an earlier step failed: " : "",
                             impl_->transport.abortMessage())};

  const int64_t begin = monotonicNanoseconds();
  auto step = impl_->rank->bindStep(EntryId{entry}, impl_->options.timeoutSeconds);
  if (!step) return impl_->fail(step.error());
  const int64_t bound = monotonicNanoseconds();
  auto tasks = impl_->execute(**step);
  if (!tasks) return impl_->fail(tasks.error());
  impl_->rank->finishStep(EntryId{entry});
  const int64_t end = monotonicNanoseconds();
  const auto [exchangeBegin, exchangeEnd] = impl_->rank->lastExchange();
  impl_->stats = {(bound - begin) * 1e-9, (exchangeEnd - exchangeBegin) * 1e-9, (end - begin) * 1e-9, *tasks,
                  (*step)->tables->rows};
  if (!impl_->trace) return {};
  impl_->trace->rank().makeRoom(3);
  impl_->record(SpanKind::kRun, EntryId{entry}, begin, end);
  impl_->record(SpanKind::kBind, EntryId{entry}, begin, bound);
  impl_->record(SpanKind::kExchange, EntryId{entry}, exchangeBegin, exchangeEnd);
  return {};
}

Expected<TensorView> Context::output(std::string_view name) {
  const TaskProgram& program = impl_->program.tables();
  const auto id = findTensor(program, name);
  if (!id) return unknownTensor(program, name);
  const Buffer& buffer = program.at(*id);
  if (!buffer.region)
    return Error{fmt::format("tensor '{}' is in the caller's memory, where it was bound", name)};
  const Step& step = impl_->rank->step();
  if (!step.plan) return Error{fmt::format("tensor '{}' is not there before a run", name)};
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

void Context::setWork(WorkKind work) { impl_->rank->setWork(work); }

Traffic Context::traffic() const {
  const Step& step = impl_->rank->step();
  return step.plan ? trafficOf(step) : Traffic{};
}

std::vector<int32_t> Context::expertRows() const {
  const Step& step = impl_->rank->step();
  if (!step.plan) return {};
  const std::vector<int32_t>& first = step.tables->expertRow;
  std::vector<int32_t> rows;
  for (size_t e = 0; e + 1 < first.size(); ++e) rows.push_back(first[e + 1] - first[e]);
  return rows;
}

const RunStats& Context::lastRun() const { return impl_->stats; }

PackedWeights Context::packedWeights() const {
  const PanelStats stats = impl_->rank->panelStats();
  return {stats.bytes, stats.panels, stats.withoutRoom};
}

void Context::startTrace(size_t spansPerWorker) {
  impl_->trace.emplace(impl_->parallel ? impl_->parallel->threads() : 1, spansPerWorker);
}

Trace Context::takeTrace() { return impl_->trace ? impl_->trace->take() : Trace{}; }

void Context::stopTrace() { impl_->trace.reset(); }

}  // namespace sluice

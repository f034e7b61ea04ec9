#include "runtime/api/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/api/context_impl.h"
#include "runtime/base/clock.h"
#include "runtime/base/one_line.h"
#include "runtime/base/rank_path.h"
#include "runtime/comm/in_process.h"
#include "runtime/workers/cores.h"

namespace sluice {
namespace {

Status checkOptions(const Transport& transport, const ContextOptions& options) {
  if (transport.isInherited())
    return Error{"the transport was made before this process was forked: make a new one here"};
  if (Status sane = checkThreads(options.threads); !sane) return sane;
  if (Status sane = checkTimeLimit(options.timeoutSeconds); !sane) return sane;
  if (options.packedBytes < 0)
    return Error{fmt::format("{} bytes of packed weights, expected 0 or more", options.packedBytes)};
  return {};
}

// The file of this rank: `pattern` with "{rank}" replaced by the rank; by the variable RANK, if it is set, as
// by torchrun, and ranks are processes, because several groups of ranks may belong to a job. Empty if
// `pattern` is. Error: more than one rank and no "{rank}".
Expected<std::string> makeHangFile(const std::string& pattern, const Transport& transport) {
  if (pattern.empty()) return pattern;
  if (transport.size() > 1 && !hasRank(pattern))
    return Error{fmt::format("found no {} in '{}', expected it in the files of {} ranks", kRankInPath,
                             oneLine(pattern), transport.size())};
  const char* const variable = transport.kind() == "threads" ? nullptr : std::getenv("RANK");
  return rankPath(pattern, variable ? variable : std::to_string(transport.rank()));
}

// For the trace of a step that fails; empty: none.
Expected<std::string> findHangFile(const Transport& transport, const ContextOptions& options) {
  if (!options.onHang.empty()) return makeHangFile(options.onHang, transport);
  const char* const variable = std::getenv("SLUICE_ON_HANG");
  if (!variable || !*variable) return std::string();
  const auto explain = [](const Error& error) {
    return Error{fmt::format("variable SLUICE_ON_HANG: {}", error.message)};
  };
  const Expected<std::string> pattern = parseOnHang(variable);
  if (!pattern) return explain(pattern.error());
  Expected<std::string> file = makeHangFile(*pattern, transport);
  if (!file) return explain(file.error());
  return file;
}

}  // namespace

struct LocalRanks::Impl {
  explicit Impl(int size) : group(size) {}
  InProcessGroup group;
};

LocalRanks::LocalRanks(int size) : impl_(std::make_unique<Impl>(size)) { readMachine(); }
LocalRanks::~LocalRanks() = default;
Transport& LocalRanks::transport(int rank) { return impl_->group.transport(rank); }

Expected<std::string> parseOnHang(std::string_view text) {
  constexpr std::string_view kTrace = "trace", kFile = "trace=";
  if (text == kTrace) return std::string("hang-{rank}.json");
  if (text.starts_with(kFile) && text.size() > kFile.size()) return std::string(text.substr(kFile.size()));
  return Error{fmt::format("found '{}', expected trace or trace=FILE", oneLine(text))};
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Context::~Context() {
  // a forked child has neither the threads nor the peers that the destructor would have to end
  if (impl_->origin.isForked())
    static_cast<void>(impl_.release());
  else
    impl_->settle();
}

Expected<std::unique_ptr<Context>> Context::create(Program program, Transport& transport,
                                                   const ContextOptions& options) {
  if (Status sane = checkOptions(transport, options); !sane) return sane.error();
  Expected<std::string> hangFile = findHangFile(transport, options);
  if (!hangFile) return hangFile.error();
  if (options.workspace) {
    const Workspace::Impl& area = *options.workspace->impl_;
    if (Status ours = area.origin.check("the workspace"); !ours) return ours.error();
    if (&area.transport != &transport) return Error{"the workspace was made for another transport"};
  }
  const Context* const owner = options.savedOf;
  if (owner && (&owner->impl_->transport != &transport ||
                owner->impl_->program.verified().fingerprint() != program.verified().fingerprint()))
    return Error{"saved sets can only be shared by contexts of one program and transport"};
  // the other ranks cannot continue without this one
  const auto giveUp = [&](const Error& error) {
    transport.abort(fmt::format("rank {}: {}", transport.rank(), error.message));
    return error;
  };
  if (transport.size() != program.ranks())
    return giveUp({fmt::format("the program was compiled for {} ranks, but the transport has {}",
                               program.ranks(), transport.size())});
  const auto plan = std::make_shared<const Plan>(Plan::make(program.verified()));
  const LoadOptions load{options.executor == ExecutorKind::kSerial, options.packedBytes};
  std::shared_ptr<Workspace> workspace = options.workspace;
  if (!workspace) {
    auto area =
        Workspace::Impl::makeFor(*plan, load, transport, {options.threads, options.pin, options.device});
    if (!area) return giveUp(area.error());
    workspace.reset(new Workspace(std::move(*area)));
  }
  Workspace::Impl& area = *workspace->impl_;
  auto executor = area.device->load(plan, load);
  if (!executor) return giveUp(executor.error());
  std::lock_guard lock(area.asking);
  auto identities = Identities::create(transport, plan->verified());
  if (!identities) return identities.error();
  if (Status there = area.ensureMeeting(); !there) return identities->explain(there.error());
  auto rank = RankState::create(plan, transport, *area.device, std::move(*executor), std::move(*identities),
                                owner ? owner->impl_->rank->savedStates() : nullptr);
  if (!rank) return rank.error();
  (*rank)->setWork(options.work);
  area.needs.add((*rank)->regions().needs);
  // a workspace that several contexts share makes the memory for the first step, in one piece for all of them
  if (!options.workspace)
    if (Status made = area.ensureMemory(); !made) return (*rank)->explain(made.error());
  // a copy of `workspace`, because the lock still needs it if there is no memory for the context
  auto impl = std::make_unique<Impl>(std::move(program), transport, options, workspace, area.contexts++,
                                     std::move(*rank));
  impl->hangFile = std::move(*hangFile);
  if (!impl->hangFile.empty()) impl->lastStep.emplace(impl->rank->executor().workers(), kSpansOfTrace);
  return std::unique_ptr<Context>(new Context(std::move(impl)));
}

Status Context::bind(std::string_view name, const TensorView& tensor, Weights weights) {
  const TaskProgram& program = impl_->program.tables();
  const auto id = findBindable(program, name);
  if (!id) return unknownBindable(program, name);
  const Buffer& buffer = program.at(*id);
  if (buffer.region)
    return Error{fmt::format("tensor '{}' is owned by the context: read it with output()", name)};
  if (Status fits = checkBindable(program, impl_->transport.rank(), buffer, tensor); !fits) {
    unbind(name, fits.error().message);
    return fits;
  }
  impl_->unbindable.erase(id->value);
  impl_->bound[id->value] = {static_cast<std::byte*>(tensor.data), tensor.shape.empty() ? 1 : tensor.shape[0],
                             ++impl_->bindings, weights == Weights::kConstant, nullptr};
  return {};
}

Status Context::setStream(void* stream) {
  if (Status ours = impl_->origin.check("the context"); !ours) return ours;
  if (stream != nullptr)
    if (auto mark = impl_->area().device->mark(stream); !mark) return mark.error();
  impl_->stream = stream;
  return {};
}

Status Context::bindRows(std::string_view name, RowMemory memory, bool mayFail) {
  const TaskProgram& program = impl_->program.tables();
  const auto id = findBindable(program, name);
  if (!id) return unknownBindable(program, name);
  const Plan& plan = impl_->rank->plan();
  bool fits = false;
  for (uint32_t e = 0; e < program.entries.size(); ++e) {
    const auto& rows = plan.at(EntryId{e}).rowWrites;
    fits = fits || std::find(rows.begin(), rows.end(), *id) != rows.end();
  }
  if (!fits)
    return Error{
        fmt::format("tensor '{}' cannot be bound as rows, expected an output of rows that tasks of "
                    "this rank write",
                    name)};
  impl_->bound[id->value].rowsMayFail = memory && mayFail;
  impl_->bound[id->value].rows = memory ? std::make_shared<const RowMemory>(std::move(memory)) : nullptr;
  return {};
}

// The earlier binding is removed, so a caller that ignores the error gets it again from the next run.
void Context::unbind(std::string_view name, const std::string& why) {
  const auto id = findBindable(impl_->program.tables(), name);
  if (!id) return;
  impl_->bound[id->value] = {};
  impl_->unbindable[id->value] = why;
}

Expected<TensorView> Context::output(std::string_view name) {
  if (Status ours = impl_->origin.check("the context"); !ours) return ours.error();
  impl_->settle();
  return impl_->output(name);
}

Expected<TensorView> Context::Impl::output(std::string_view name) {
  const TaskProgram& tables = program.tables();
  const auto id = findBindable(tables, name);
  if (!id) return unknownBindable(tables, name);
  const Buffer& buffer = tables.at(*id);
  if (!buffer.region)
    return Error{fmt::format("tensor '{}' is in the caller's memory, where it was bound", name)};
  const Step& step = rank->step();
  if (!step.plan) return Error{fmt::format("tensor '{}' does not exist before a run", name)};
  if (!tables.at(buffer.region).saved && area().last.load(std::memory_order_relaxed) != this)
    return Error{fmt::format("tensor '{}' is gone: another context of the workspace has run since", name)};
  const BufferAddress& address = step.at(*id);
  TensorView view{buffer.type, {step.tables->rows}, address.data};
  for (size_t d = 1; d < buffer.shape.size(); ++d) view.shape.push_back(buffer.shape[d].size);
  const int64_t rowBytes = view.shape[0] > 0 ? view.bytes() / view.shape[0] : 0;
  Device& device = *area().device;
  const bool hasGaps = rowBytes != address.stride;
  if (view.shape[0] == 0 || (!hasGaps && device.isOnHost())) return view;
  // the region has gaps between rows, or is out of the caller's reach, who gets a packed copy
  auto& copy = packed[id->value];
  copy.resize(view.bytes());
  const int64_t pieces = hasGaps ? view.shape[0] : 1, pieceBytes = view.bytes() / pieces;
  for (int64_t piece = 0; piece < pieces; ++piece)
    if (Status read = device.read(copy.data() + piece * pieceBytes, address.data + piece * address.stride,
                                  static_cast<size_t>(pieceBytes));
        !read)
      return read.error();
  view.data = copy.data();
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
  return step.plan ? countTraffic(step) : Traffic{};
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

int64_t Context::savedBytes() const { return impl_->rank->savedStates()->bytes(); }

const RunStats& Context::lastRun() const {
  if (!impl_->origin.isForked()) impl_->settle();
  return impl_->stats;
}

PackedWeights Context::packedWeights() const {
  if (impl_->origin.isForked()) return {};
  impl_->settle();
  return impl_->rank->executor().packedWeights();
}

void Context::startTrace(size_t spansPerWorker) {
  if (impl_->origin.isForked()) return;
  impl_->settle();
  impl_->trace.emplace(impl_->rank->executor().workers(), spansPerWorker);
}

Trace Context::takeTrace() {
  if (impl_->origin.isForked()) return {};
  impl_->settle();
  if (impl_->unfinished) return std::move(*std::exchange(impl_->unfinished, std::nullopt));
  return impl_->trace ? impl_->trace->take() : Trace{};
}

void Context::stopTrace() {
  if (impl_->origin.isForked()) return;
  impl_->settle();
  impl_->trace.reset();
  impl_->unfinished.reset();
}

}  // namespace sluice

#include "ops/torch/layer_state.h"

#include <fmt/format.h>

#include "ops/torch/traced_layers.h"

namespace sluice {

LayerState::LayerState(Program program, int rank, std::unique_ptr<Context> context,
                       std::shared_ptr<Workspace> workspace, std::mutex& turn, double timeoutSeconds)
    : program_(std::move(program)),
      rank_(rank),
      context_(std::move(context)),
      workspace_(std::move(workspace)),
      timeoutSeconds_(timeoutSeconds),
      turn_(turn) {}

Expected<std::shared_ptr<LayerState>> LayerState::create(Program program, Transport& transport,
                                                         std::shared_ptr<Workspace> workspace,
                                                         std::mutex& turn, double timeoutSeconds,
                                                         std::shared_ptr<LayerState> savedOf) {
  ContextOptions options;
  if (savedOf) options.savedOf = savedOf->context_.get();
  options.workspace = workspace;
  options.timeoutSeconds = timeoutSeconds;
  auto context = Context::create(program, transport, options);
  if (!context) return context.error();
  if (transport.size() > 1)
    if (Status made = workspace->reserve(); !made) return made.error();
  std::shared_ptr<LayerState> made(new LayerState(std::move(program), transport.rank(), std::move(*context),
                                                  std::move(workspace), turn, timeoutSeconds));
  if (savedOf) made->sets_ = kMaxSavedSets;  // the other state has made them
  made->savedOf_ = std::move(savedOf);
  tracedLayers().add(made);
  return made;
}

Status LayerState::refuse(const std::string& why) {
  if (Status here = checkProcess(); !here) return here;
  return workspace_->refuse(why, timeoutSeconds_);
}

// The caller must have the turn. The context makes all remaining checks of the step.
Status LayerState::prepare(std::span<const NamedTensor> tensors, std::span<const NamedRows> rows,
                           uint32_t set) {
  Status bound;
  for (const NamedRows& each : rows)
    if (bound) bound = context_->bindRows(each.name, each.memory, each.mayFail);
  for (const NamedTensor& tensor : tensors) {
    const auto known = contents_.find(tensor.name);
    if (!bound || (known != contents_.end() && known->second == tensor.content)) continue;
    if (known != contents_.end()) contents_.erase(known);
    const Weights promise = tensor.content != 0 ? Weights::kConstant : Weights::kOrdinary;
    bound = context_->bind(tensor.name, tensor.view, promise);
    if (bound && tensor.content != 0) contents_.emplace(tensor.name, tensor.content);
  }
  if (!bound) {
    static_cast<void>(refuse(bound.error().message));
    return bound;
  }
  if (set < sets_) return {};
  // all ranks make memory for it, or none does
  const std::string what = fmt::format("take one more set of '{}'", program().name);
  if (Status all = workspace_->agree(what, program_.verified().fingerprint(), timeoutSeconds_); !all)
    return all;
  sets_ = set + 1;
  return {};
}

// What the functions refer to may end with the call that bound them.
void LayerState::release(std::span<const NamedRows> rows) {
  for (const NamedRows& each : rows) static_cast<void>(context_->bindRows(each.name, {}));
}

Status LayerState::run(std::string_view entry, std::span<const NamedTensor> tensors, uint32_t set,
                       const StepExtras& extras) {
  if (Status here = checkProcess(); !here) return here;
  const std::lock_guard<std::mutex> lock(turn_);
  Status ran = prepare(tensors, extras.rows, set);
  if (ran) ran = context_->run(entry, SavedSet{set}, extras.common);
  release(extras.rows);
  if (!extras.watcher) return ran;
  return extras.watcher->ended(ran, [this](std::string_view name) { return context_->output(name); });
}

Expected<PendingStep> LayerState::submit(std::string_view entry, std::span<const NamedTensor> tensors,
                                         uint32_t set, const StepExtras& extras) {
  if (Status here = checkProcess(); !here) return here.error();
  const std::lock_guard<std::mutex> lock(turn_);
  Status ready = prepare(tensors, extras.rows, set);
  auto pending =
      ready ? context_->submit(entry, SavedSet{set}, extras.watcher) : Expected<PendingStep>(ready.error());
  release(extras.rows);
  return pending;
}

void LayerState::startTrace() {
  const std::lock_guard<std::mutex> lock(turn_);
  context_->startTrace();
}

Trace LayerState::endTrace() {
  const std::lock_guard<std::mutex> lock(turn_);
  Trace trace = context_->takeTrace();
  context_->stopTrace();
  return trace;
}

int64_t LayerState::savedBytes() const { return context_->savedBytes(); }
int64_t LayerState::packedBytes() const { return context_->packedWeights().bytes; }

}  // namespace sluice

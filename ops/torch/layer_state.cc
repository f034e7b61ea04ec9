#include "ops/torch/layer_state.h"

namespace sluice {

LayerState::LayerState(Program program, int rank, std::unique_ptr<Context> context, std::mutex& turn)
    : program_(std::move(program)), rank_(rank), context_(std::move(context)), turn_(turn) {}

Expected<std::shared_ptr<LayerState>> LayerState::create(Program program, Transport& transport,
                                                         std::shared_ptr<Workspace> workspace,
                                                         std::mutex& turn, double timeoutSeconds) {
  ContextOptions options;
  options.workspace = std::move(workspace);
  options.timeoutSeconds = timeoutSeconds;
  auto context = Context::create(program, transport, options);
  if (!context) return context.error();
  return std::shared_ptr<LayerState>(
      new LayerState(std::move(program), transport.rank(), std::move(*context), turn));
}

Status LayerState::bind(std::span<const NamedTensor> tensors) {
  for (const NamedTensor& tensor : tensors)
    if (Status bound = context_->bind(tensor.name, tensor.view); !bound) return bound;
  return {};
}

Status LayerState::run(std::string_view entry, std::span<const NamedTensor> tensors, uint32_t set,
                       StepOutputs* outputs) {
  if (Status here = checkProcess(); !here) return here;
  const std::lock_guard<std::mutex> lock(turn_);
  if (Status bound = bind(tensors); !bound) return bound;
  if (Status ran = context_->run(entry, SavedSet{set}); !ran) return ran;
  return outputs ? outputs->look(*context_) : Status{};
}

Expected<PendingStep> LayerState::submit(std::string_view entry, std::span<const NamedTensor> tensors,
                                         uint32_t set) {
  if (Status here = checkProcess(); !here) return here.error();
  const std::lock_guard<std::mutex> lock(turn_);
  if (Status bound = bind(tensors); !bound) return bound.error();
  return context_->submit(entry, SavedSet{set});
}

int64_t LayerState::savedBytes() const { return context_->savedBytes(); }

}  // namespace sluice

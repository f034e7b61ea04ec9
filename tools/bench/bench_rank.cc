#include "tools/bench/bench_rank.h"

namespace sluice::tools {
namespace {

constexpr double kTimeout = 600;

}  // namespace

Expected<std::unique_ptr<BenchRank>> BenchRank::create(const RanksSpec& spec, Transport& transport) {
  std::unique_ptr<BenchRank> rank(new BenchRank);
  rank->entries_ = spec.entries;
  Expected<TensorMap> tensors = makeLayerRank(spec.program, spec.layer, transport.rank());
  if (!tensors) return tensors.error();
  rank->tensors_ = std::move(*tensors);
  ContextOptions options;
  options.threads = spec.threads;
  options.timeoutSeconds = kTimeout;
  options.packEachStep = spec.weights == WeightsMode::kPackedEachStep;
  auto context = Context::create(spec.program, transport, options);
  if (!context) return context.error();
  rank->context_ = std::move(*context);
  const bool constant = spec.weights == WeightsMode::kConstant;
  for (auto& [name, tensor] : rank->tensors_) {
    const TensorView view{tensor.type(), tensor.shape(), tensor.data()};
    const Weights promise = constant && name.ends_with("_weight") ? Weights::kConstant : Weights::kOrdinary;
    if (Status bound = rank->context_->bind(name, view, promise); !bound) return bound.error();
  }
  auto probe = OverlapProbe::create(transport, kTimeout);
  if (!probe) return probe.error();
  rank->probe_ = std::move(*probe);
  return rank;
}

}  // namespace sluice::tools

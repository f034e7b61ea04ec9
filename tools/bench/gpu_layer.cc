#include "tools/bench/gpu_layer.h"

#include <utility>

#include "runtime/base/clock.h"
#include "runtime/gpu/forwarding_backend.h"
#include "runtime/gpu/gpu_device.h"

namespace sluice::tools {
namespace {

constexpr double kTimeoutSeconds = 20;  // of a wait: a kernel that does not end ends so

}  // namespace

class GpuLayer::TimedBackend final : public ForwardingBackend {
 public:
  TimedBackend(std::shared_ptr<GpuBackend> real, Launch& launch)
      : ForwardingBackend(std::move(real)), launch_(launch) {}

  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds) override {
    launch_.begin = monotonicNanoseconds();
    auto outcome = ForwardingBackend::run(tables, transport, timeoutSeconds);
    launch_.seconds = outcome ? outcome->seconds : 0;
    return outcome;
  }

 private:
  Launch& launch_;
};

Expected<std::unique_ptr<GpuLayer>> GpuLayer::create(Program program, std::vector<int32_t> ids, int64_t rows,
                                                     std::shared_ptr<GpuBackend> backend,
                                                     Transport& transport) {
  std::unique_ptr<GpuLayer> layer(new GpuLayer());
  layer->ids_ = std::move(ids);
  const TaskProgram& tables = program.tables();
  const auto tokens = std::ssize(layer->ids_) / tables.topK;
  auto tensors = makeGpuTensors(*backend, tables, tokens, rows);
  if (!tensors) return tensors.error();
  layer->tensors_ = std::move(*tensors);
  ContextOptions options;
  options.timeoutSeconds = kTimeoutSeconds;
  options.device = devicesOn([&](Transport&) -> Expected<std::unique_ptr<GpuBackend>> {
    return std::unique_ptr<GpuBackend>(new TimedBackend(backend, layer->launch_));
  });
  auto context = Context::create(program, transport, options);
  if (!context) return context.error();
  layer->context_ = std::move(*context);
  if (Status bound = layer->bind(tables); !bound) return bound.error();
  return layer;
}

Status GpuLayer::bind(const TaskProgram& program) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role == Role::kInput && buffer.type == DType::kI32) {
      const int64_t tokens = std::ssize(ids_) / program.topK;
      if (Status bound = context_->bind(buffer.name, {DType::kI32, {tokens, program.topK}, ids_.data()});
          !bound)
        return bound;
      continue;
    }
    const auto found = tensors_.find(buffer.name);
    if (found == tensors_.end()) continue;
    const GpuTensor& tensor = found->second;
    const Status bound =
        isCallers(buffer)
            ? context_->bind(buffer.name, {tensor.type, tensor.shape, tensor.memory.data})
            : context_->bindRows(
                  buffer.name,
                  [data = tensor.memory.data](std::span<const int32_t>) -> Expected<void*> { return data; },
                  false);
    if (!bound) return bound;
  }
  return {};
}

Expected<StepSeconds> GpuLayer::run(Pass pass) {
  const int64_t begin = monotonicNanoseconds();
  if (Status ran = context_->run(passName(pass)); !ran) return ran.error();
  const auto seconds = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
  const double bind = context_->lastRun().bindSeconds;
  return StepSeconds{seconds(monotonicNanoseconds() - begin), launch_.seconds, bind,
                     seconds(launch_.begin - begin) - bind};
}

}  // namespace sluice::tools

#include "tools/bench/gpu_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/gpu/forwarding_backend.h"
#include "runtime/gpu/gpu_device.h"
#include "tools/io/tensor.h"
#include "tools/moe/random.h"

namespace sluice::tools {

namespace {

constexpr double kTimeoutSeconds = 20;  // of a wait: a kernel that does not end ends so

constexpr int64_t kPeriod = 1'000'003;          // a prime number
constexpr int64_t kElementsPerPiece = 8 << 20;  // that are compared at once

// Expert weights are positive, and of one token about 1 in all; weights of products keep the variance.
float numberFor(const GpuTensor& tensor, Random& random) {
  if (tensor.type == DType::kF32)
    return static_cast<float>((0.5 + random.uniform()) / static_cast<double>(tensor.shape.back()));
  const double fanIn = tensor.shape.size() > 2 ? static_cast<double>(tensor.shape[1]) : 1;
  return random.normal() / static_cast<float>(std::sqrt(fanIn));
}

Status fill(GpuBackend& backend, const GpuTensor& tensor, uint64_t stream) {
  Random random(1, stream);
  Tensor block(tensor.type, {std::min(kPeriod, tensor.elements())});
  for (int64_t i = 0; i < block.elements(); ++i)
    setElement(tensor.type, block.data(), i, numberFor(tensor, random));
  const int64_t size = dtypeBytes(tensor.type);
  for (int64_t at = 0; at < tensor.elements(); at += block.elements()) {
    const int64_t count = std::min(block.elements(), tensor.elements() - at);
    if (Status copied =
            backend.copyIn(tensor.memory.data + at * size, block.data(), static_cast<size_t>(count * size));
        !copied)
      return copied;
  }
  return {};
}

Status readPiece(GpuBackend& backend, const GpuTensor& tensor, int64_t at, int64_t count,
                 std::vector<std::byte>& bytes, std::vector<float>& values) {
  const int64_t size = dtypeBytes(tensor.type);
  bytes.resize(static_cast<size_t>(count * size));
  if (Status copied = backend.copyOut(bytes.data(), tensor.memory.data + at * size, bytes.size()); !copied)
    return copied;
  values.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = tensor.type == DType::kBF16
                                         ? toFloat(reinterpret_cast<const BFloat16*>(bytes.data())[i])
                                         : reinterpret_cast<const float*>(bytes.data())[i];
  return {};
}

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

int64_t GpuTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

Expected<GpuTensor> makeGpuTensor(GpuBackend& backend, DType type, std::vector<int64_t> shape) {
  GpuTensor tensor{type, std::move(shape), {}};
  const auto bytes = static_cast<size_t>(tensor.elements() * dtypeBytes(type));
  auto memory = backend.reserve(bytes);
  if (!memory) return memory.error();
  tensor.memory = std::move(*memory);
  if (bytes == 0) return tensor;
  if (Status zeroed = backend.zero(tensor.memory.data, bytes); !zeroed) return zeroed.error();
  return tensor;
}

Expected<GpuTensors> makeGpuTensors(GpuBackend& backend, const TaskProgram& program, int64_t tokens,
                                    int64_t rows) {
  GpuTensors tensors;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.role != Role::kInput && buffer.role != Role::kOutput) continue;
    if (buffer.role == Role::kInput && buffer.type == DType::kI32) continue;
    if (buffer.type != DType::kBF16 && buffer.type != DType::kF32)
      return Error{
          fmt::format("tensor '{}' has type {}, expected BF16 or F32", buffer.name, dtypeName(buffer.type))};
    auto tensor = makeGpuTensor(backend, buffer.type, shapeOf(program, buffer, 0, tokens, rows));
    if (!tensor) return Error{fmt::format("tensor '{}': {}", buffer.name, tensor.error().message)};
    if (buffer.role == Role::kInput)
      if (Status filled = fill(backend, *tensor, b); !filled) return filled.error();
    tensors.emplace(buffer.name, std::move(*tensor));
  }
  return tensors;
}

Expected<double> measureDifference(GpuBackend& backend, const GpuTensor& ours, const GpuTensor& theirs) {
  std::vector<std::byte> bytes;
  std::vector<float> our, their;
  double apart = 0, size = 0;
  for (int64_t at = 0; at < theirs.elements(); at += kElementsPerPiece) {
    const int64_t count = std::min(kElementsPerPiece, theirs.elements() - at);
    Status read = readPiece(backend, ours, at, count, bytes, our);
    if (read) read = readPiece(backend, theirs, at, count, bytes, their);
    if (!read) return read.error();
    for (size_t i = 0; i < their.size(); ++i) {
      const double off = double{our[i]} - double{their[i]};
      apart += off * off;
      size += double{their[i]} * double{their[i]};
    }
  }
  // a NaN must not look like agreement
  const double relative = std::sqrt(apart / std::max(size, 1e-30));
  return std::isfinite(relative) ? relative : HUGE_VAL;
}

}  // namespace sluice::tools

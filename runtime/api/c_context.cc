// Contexts of the C interface: create, bind, run, read outputs.
#include <limits>
#include <type_traits>

#include "runtime/api/c_handles.h"

bool sluice_context::isBusy() const {
  return std::any_of(submitted.begin(), submitted.end(),
                     [](const auto& step) { return !step->pending.isDone(); });
}

namespace sluice::capi {
namespace {

Outcome contextOptions(const sluice_context_options* given, const sluice_transport& transport,
                       ContextOptions& options) {
  sluice_context_options known{};
  if (given)
    if (Outcome outcome = readStructure(given, "options", known); outcome.status != SLUICE_OK) return outcome;
  if (known.pinning != SLUICE_PIN_IF_ENOUGH && known.pinning != SLUICE_PIN_NEVER)
    return badArgument(fmt::format("pinning is {}, expected 0 or 1", known.pinning));
  if (known.executor != SLUICE_PARALLEL && known.executor != SLUICE_SERIAL)
    return badArgument(fmt::format("executor is {}, expected 0 or 1", known.executor));
  if (known.packed_bytes < -1)
    return badArgument(fmt::format("{} bytes of packed weights, expected -1 (none), 0 (no limit) or more",
                                   known.packed_bytes));
  if (known.workspace && known.workspace->transport != transport.transport)
    return badArgument("the workspace is of another transport than the context");
  options.threads = known.threads;
  options.pin = known.pinning != SLUICE_PIN_NEVER;
  options.executor = known.executor == SLUICE_SERIAL ? ExecutorKind::kSerial : ExecutorKind::kParallel;
  if (known.timeout_seconds != 0) options.timeoutSeconds = known.timeout_seconds;
  if (known.packed_bytes != 0) options.packedBytes = std::max<int64_t>(0, known.packed_bytes);
  if (!known.workspace)
    if (Outcome outcome = findDevice(known.device, *transport.transport, options.device);
        outcome.status != SLUICE_OK)
      return outcome;
  if (known.workspace) options.workspace = known.workspace->workspace;
  return {};
}

// Whether an enum of the header has the same values as the C++ enum that it is cast to.
constexpr bool sameValues() {
  return SLUICE_F32 == static_cast<int>(DType::kF32) && SLUICE_BF16 == static_cast<int>(DType::kBF16) &&
         SLUICE_F16 == static_cast<int>(DType::kF16) && SLUICE_I32 == static_cast<int>(DType::kI32) &&
         SLUICE_I64 == static_cast<int>(DType::kI64) && SLUICE_I8 == static_cast<int>(DType::kI8) &&
         SLUICE_U8 == static_cast<int>(DType::kU8) && SLUICE_F8_E4M3 == static_cast<int>(DType::kF8_E4M3) &&
         SLUICE_F8_E8M0 == static_cast<int>(DType::kF8_E8M0) &&
         SLUICE_FIXED == static_cast<int>(Extent::kFixed) &&
         SLUICE_TOKENS == static_cast<int>(Extent::kTokens) &&
         SLUICE_ROWS == static_cast<int>(Extent::kRows) && SLUICE_PAIRS == static_cast<int>(Extent::kPairs) &&
         SLUICE_EXPERTS == static_cast<int>(Extent::kExperts);
}
static_assert(sameValues());

// Checks a tensor as far as possible without its program.
Outcome checkTensor(const char* name, const sluice_tensor* given, sluice_tensor& tensor) {
  constexpr int32_t kMaxDims = 16;
  if (Outcome outcome = readStructure(given, "tensor", tensor); outcome.status != SLUICE_OK) return outcome;
  if (sluice_type_bytes(tensor.type) == 0)
    return badArgument(fmt::format("tensor '{}' has type number {}, which is not a type", name, tensor.type));
  if (tensor.dim_count < 0 || tensor.dim_count > kMaxDims)
    return badArgument(
        fmt::format("tensor '{}' has {} dimensions, expected 0 to {}", name, tensor.dim_count, kMaxDims));
  if (tensor.dim_count > 0 && !tensor.dims)
    return badArgument(fmt::format("the dimensions of tensor '{}' are null", name));
  if ((tensor.flags & ~uint32_t{SLUICE_CONSTANT}) != 0)
    return badArgument(fmt::format("tensor '{}' has unknown flags: found {}", name, tensor.flags));
  return {};
}

Outcome bind(sluice_context& context, const char* name, const sluice_tensor* given) {
  sluice_tensor tensor{};
  if (Outcome outcome = checkTensor(name, given, tensor); outcome.status != SLUICE_OK) {
    context.context->unbind(name, outcome.message);
    return outcome;
  }
  const TensorView view{
      static_cast<DType>(tensor.type), {tensor.dims, tensor.dims + tensor.dim_count}, tensor.data};
  const Weights weights = (tensor.flags & SLUICE_CONSTANT) != 0 ? Weights::kConstant : Weights::kOrdinary;
  if (Status bound = context.context->bind(name, view, weights); !bound) return failed(bound.error());
  return {};
}

Outcome output(sluice_context& context, const char* name, sluice_tensor* tensor) {
  Expected<TensorView> view = context.context->output(name);
  if (!view) return failed(view.error());
  std::vector<int64_t>& dims = context.outputDims[name];
  dims = view->shape;
  sluice_tensor known{};
  known.type = static_cast<sluice_type>(view->type);
  known.dim_count = static_cast<int32_t>(dims.size());
  known.dims = dims.data();
  known.data = view->data;
  return writeStructure(known, "tensor", tensor);
}

Outcome create(const sluice_program& program, const sluice_transport& transport,
               const sluice_context_options* given, sluice_context*& context) {
  if (Outcome outcome = checkOrigin(transport.origin, "the transport"); outcome.status != SLUICE_OK)
    return outcome;
  ContextOptions options;
  if (Outcome outcome = contextOptions(given, transport, options); outcome.status != SLUICE_OK)
    return outcome;
  std::unique_ptr<sluice_context> handle(
      new sluice_context{transport.transport, program.program, {}, {}, {}, {}, {}});
  auto made = Context::create(program.program, *transport.transport, options);
  if (!made) return failedOn(*transport.transport, made.error());
  handle->context = std::move(*made);
  context = handle.release();
  return {};
}

}  // namespace

Outcome checkContext(const sluice_context* context) {
  if (!context) return badArgument("context is null");
  return checkOrigin(context->origin, "the context");
}

Outcome checkIdle(const sluice_context* context) {
  if (Outcome outcome = checkContext(context); outcome.status != SLUICE_OK) return outcome;
  if (context->isBusy()) return {SLUICE_ERROR_FAILED, "a submitted step is not over yet: wait for it first"};
  return {};
}

Outcome checkRun(const char* entry, uint32_t saved) {
  if (!entry) return badArgument("entry is null");
  if (saved > SLUICE_SAVED_LAST)
    return badArgument(fmt::format("found saved set {}, expected 0 to {}", saved, SLUICE_SAVED_LAST + 0));
  return {};
}

}  // namespace sluice::capi

using namespace sluice::capi;

sluice_status sluice_context_create(sluice_program* program, sluice_transport* transport,
                                    const sluice_context_options* given, sluice_context** context) {
  if (context) *context = nullptr;
  return guarded(nullptr, [&]() -> Outcome {
    for (const auto& [given, name] : {std::pair<const void*, const char*>(program, "program"),
                                      {transport, "transport"},
                                      {context, "context"}})
      if (!given) return badArgument(fmt::format("{} is null", name));
    return collectively(*transport->transport, [&] { return create(*program, *transport, given, *context); });
  });
}

void sluice_context_free(sluice_context* context) {
  if (context && !context->origin.isForked())
    for (const auto& step : context->submitted)
      guarded(nullptr, [&]() -> Outcome {
        (void)step->pending.wait();
        return {};
      });
  freeHandle(context);
}

const char* sluice_context_error(const sluice_context* context) {
  return context ? context->error.c_str() : "context is null";
}

sluice_status sluice_context_bind(sluice_context* context, const char* name, const sluice_tensor* tensor) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkContext(context); outcome.status != SLUICE_OK) return outcome;
    if (!name) return badArgument("name is null");
    return bind(*context, name, tensor);
  });
}

sluice_status sluice_context_set_stream(sluice_context* context, void* stream) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkContext(context); outcome.status != SLUICE_OK) return outcome;
    const sluice::Status set = context->context->setStream(stream);
    return set ? Outcome{} : failed(set.error());
  });
}

sluice_status sluice_context_bind_rows(sluice_context* context, const char* name, sluice_row_memory memory,
                                       void* user) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkContext(context); outcome.status != SLUICE_OK) return outcome;
    if (!name) return badArgument("name is null");
    sluice::RowMemory rows;
    if (memory) rows = [memory, user](std::span<const int32_t> first) { return memory(user, first.back()); };
    sluice::Status bound = context->context->bindRows(name, std::move(rows));
    return bound ? Outcome{} : failed(bound.error());
  });
}

sluice_status sluice_context_run(sluice_context* context, const char* entry, uint32_t saved) {
  return guardedCollective(context, [&]() -> Outcome {
    if (Outcome outcome = checkRun(entry, saved); outcome.status != SLUICE_OK) {
      static_cast<void>(context->context->refuse(outcome.message, {saved}));
      return outcome;
    }
    sluice::Status ran = context->context->run(entry, {saved});
    return ran ? Outcome{} : failedOn(*context->transport, ran.error());
  });
}

sluice_status sluice_context_refuse(sluice_context* context, uint32_t saved, const char* message) {
  return guardedCollective(context, [&]() -> Outcome {
    // even without a message the other ranks must not wait for this one
    sluice::Status refused = context->context->refuse(message ? message : "", {saved});
    if (!message) return badArgument("message is null");
    return refused ? Outcome{} : failedOn(*context->transport, refused.error());
  });
}

sluice_status sluice_context_output(sluice_context* context, const char* name, sluice_tensor* tensor) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkIdle(context); outcome.status != SLUICE_OK) return outcome;
    if (!name) return badArgument("name is null");
    if (Outcome outcome = checkSize(tensor, "tensor"); outcome.status != SLUICE_OK) return outcome;
    return output(*context, name, tensor);
  });
}

sluice_status sluice_context_expert_rows(sluice_context* context, int32_t* rows, int32_t capacity,
                                         int32_t* count) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkIdle(context); outcome.status != SLUICE_OK) return outcome;
    if (!count) return badArgument("count is null");
    const std::vector<int32_t> all = context->context->expertRows();
    if (capacity < 0 || static_cast<size_t>(capacity) < all.size())
      return badArgument(fmt::format("room for {} experts, but the rank has {}", capacity, all.size()));
    if (!rows && !all.empty()) return badArgument("rows is null");
    std::copy(all.begin(), all.end(), rows);
    *count = static_cast<int32_t>(all.size());
    return {};
  });
}

sluice_status sluice_context_get_stats(sluice_context* context, sluice_stats* stats) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkIdle(context); outcome.status != SLUICE_OK) return outcome;
    const sluice::RunStats& run = context->context->lastRun();
    const sluice::PackedWeights packed = context->context->packedWeights();
    sluice_stats known{};
    known.run_seconds = run.runSeconds;
    known.bind_seconds = run.bindSeconds;
    known.exchange_seconds = run.exchangeSeconds;
    known.tasks = run.tasks;
    known.rows = run.rows;
    known.saved_bytes = context->context->savedBytes();
    known.packed_bytes = packed.bytes;
    known.packed_panels = packed.panels;
    known.unpacked_panels = packed.withoutRoom;
    return writeStructure(known, "stats", stats);
  });
}

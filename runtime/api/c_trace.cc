// Traces of the C interface.
#include <span>

#include "runtime/api/c_handles.h"
#include "runtime/base/clock.h"
#include "runtime/base/pending_file.h"
#include "runtime/trace/chrome_trace.h"

namespace sluice::capi {
namespace {

constexpr uint64_t kMaxSpans = uint64_t{1} << 28;

// The contexts must be different ranks of one program, with no step under way.
Outcome checkTraced(sluice_context* const* contexts, size_t count) {
  if (!contexts || count == 0) return badArgument("no contexts");
  std::vector<bool> seen;
  for (size_t i = 0; i < count; ++i) {
    if (Outcome outcome = checkIdle(contexts[i]); outcome.status != SLUICE_OK) return outcome;
    if (contexts[i]->program.verified().fingerprint() != contexts[0]->program.verified().fingerprint())
      return badArgument(fmt::format("context {} is of another program than context 0", i));
    const auto rank = static_cast<size_t>(contexts[i]->transport->rank());
    seen.resize(std::max(seen.size(), rank + 1));
    if (seen[rank]) return badArgument(fmt::format("two contexts of rank {}", rank));
    seen[rank] = true;
  }
  return {};
}

}  // namespace
}  // namespace sluice::capi

using namespace sluice::capi;

sluice_status sluice_context_trace_start(sluice_context* context, uint64_t spans) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkIdle(context); outcome.status != SLUICE_OK) return outcome;
    if (spans > kMaxSpans)
      return badArgument(fmt::format("found {} spans, expected at most {}", spans, kMaxSpans));
    if (spans == 0)
      context->context->startTrace();
    else
      context->context->startTrace(static_cast<size_t>(spans));
    return {};
  });
}

sluice_status sluice_context_trace_stop(sluice_context* context) {
  return guarded(context ? &context->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkIdle(context); outcome.status != SLUICE_OK) return outcome;
    context->context->stopTrace();
    return {};
  });
}

sluice_status sluice_trace_write(sluice_context* const* contexts, size_t count, const char* path) {
  return guarded(nullptr, [&]() -> Outcome {
    if (!path) return badArgument("path is null");
    if (Outcome outcome = checkTraced(contexts, count); outcome.status != SLUICE_OK) return outcome;
    const sluice::TaskProgram& program = contexts[0]->program.tables();
    std::vector<sluice::Trace> ranks(static_cast<size_t>(program.mesh.peers()));
    for (size_t i = 0; i < count; ++i)
      ranks[static_cast<size_t>(contexts[i]->transport->rank())] = contexts[i]->context->takeTrace();
    const std::string text = sluice::chromeTrace(program, ranks, sluice::nameOfClock());
    if (sluice::Status written = sluice::replaceFile(path, std::as_bytes(std::span(text))); !written)
      return failed(written.error());
    return {};
  });
}

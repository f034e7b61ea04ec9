// Submitted steps of the C interface.
#include "runtime/api/c_handles.h"

namespace sluice::capi {
namespace {

Outcome checkStep(const sluice_step* step) {
  if (!step) return badArgument("step is null");
  return checkOrigin(step->origin, "the step");
}

Outcome submit(sluice_context& context, const char* entry, uint32_t saved, sluice_step** step) {
  std::erase_if(context.submitted, [](const auto& earlier) { return earlier->pending.isDone(); });
  // everything that can run out of memory comes before the step
  std::unique_ptr<sluice_step> handle(new sluice_step{});
  context.submitted.reserve(context.submitted.size() + 1);
  Expected<PendingStep> pending = context.context->submit(entry, {saved});
  if (!pending) return failedOn(*context.transport, pending.error());
  handle->step.reset(new SubmittedStep{context.transport, std::move(*pending)});
  context.submitted.push_back(handle->step);
  *step = handle.release();
  return {};
}

Outcome wait(SubmittedStep& step) {
  Status ended = step.pending.wait();
  if (ended) return {};
  Outcome outcome = failedOn(*step.transport, ended.error());
  if (outcome.status == SLUICE_ERROR_FAILED && step.cancelled.load()) outcome.status = SLUICE_ERROR_CANCELLED;
  return outcome;
}

}  // namespace
}  // namespace sluice::capi

using namespace sluice::capi;

sluice_status sluice_context_submit(sluice_context* context, const char* entry, uint32_t saved,
                                    sluice_step** step) {
  if (step) *step = nullptr;
  return guardedCollective(context, [&]() -> Outcome {
    Outcome outcome = checkRun(entry, saved);
    if (outcome.status == SLUICE_OK && !step) outcome = badArgument("step is null");
    if (outcome.status == SLUICE_OK) return submit(*context, entry, saved, step);
    static_cast<void>(context->context->refuseSubmitted(outcome.message, {saved}));
    return outcome;
  });
}

sluice_status sluice_step_wait(sluice_step* step) {
  return guarded(step ? &step->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkStep(step); outcome.status != SLUICE_OK) return outcome;
    return wait(*step->step);
  });
}

sluice_status sluice_step_poll(sluice_step* step, int32_t* done) {
  return guarded(step ? &step->error : nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkStep(step); outcome.status != SLUICE_OK) return outcome;
    if (!done) return badArgument("done is null");
    *done = step->step->pending.isDone();
    return {};
  });
}

sluice_status sluice_step_cancel(sluice_step* step) {
  // not recorded as the step's message, because another thread may wait for the step
  return guarded(nullptr, [&]() -> Outcome {
    if (Outcome outcome = checkStep(step); outcome.status != SLUICE_OK) return outcome;
    if (step->step->pending.isDone()) return {};
    step->step->cancelled.store(true);
    step->step->pending.cancel();
    return {};
  });
}

const char* sluice_step_error(const sluice_step* step) { return step ? step->error.c_str() : "step is null"; }

void sluice_step_free(sluice_step* step) {
  // not sluice_step_wait(), so that the message of a failed call stays readable
  if (step && !step->origin.isForked())
    guarded(nullptr, [&]() -> Outcome {
      (void)step->step->pending.wait();
      return {};
    });
  freeHandle(step);
}

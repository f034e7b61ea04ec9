#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "runtime/api/context_impl.h"
#include "runtime/api/pending_step_impl.h"
#include "runtime/base/clock.h"
#include "runtime/base/pending_file.h"
#include "runtime/trace/chrome_trace.h"

namespace sluice {

Expected<EntryId> Context::Impl::check(std::string_view name, SavedSet set) const {
  const auto& entries = program.tables().entries;
  uint32_t entry = 0;
  while (entry < entries.size() && entries[entry].name != name) ++entry;
  if (entry == entries.size()) {
    std::vector<std::string> known;
    for (const Entry& e : entries) known.push_back(e.name);
    return Error{
        fmt::format("the program has no entry '{}', expected one of: {}", name, fmt::join(known, ", "))};
  }
  if (set.value >= kMaxSavedSets)
    return Error{fmt::format("saved set {}, expected 0 to {}", set.value, kMaxSavedSets - 1)};
  const EntryPlan& entryPlan = rank->plan().at(EntryId{entry});
  for (const auto& [buffer, why] : unbindable)
    for (const auto* list : {&entryPlan.reads, &entryPlan.writes})
      if (std::find(list->begin(), list->end(), BufferId{buffer}) != list->end()) return Error{why};
  return EntryId{entry};
}

Expected<std::shared_ptr<StreamMark>> Context::Impl::markStream() const {
  if (stream == nullptr) return std::shared_ptr<StreamMark>();
  return area().device->mark(stream);
}

Status Context::Impl::refuse(std::string_view entry, SavedSet set, const std::string& why, Refusal when) {
  if (transport.size() == 1) return {};
  // no pointer to the context, which may end before the step's turn
  const auto refuseStep = [in = &area(), name = std::string(entry), why,
                           limit = options.timeoutSeconds](uint64_t ticket) {
    Status status = in->refuse(ticket, name, why, limit);
    in->turns.pass();
    return status;
  };
  Workspace::Impl::OneJob job;
  if (when == Refusal::kInTurn && area().startRunner()) job = Workspace::Impl::makeJob(refuseStep);
  std::unique_lock lock(area().asking);
  // memory that the other ranks make for the step, as far as this rank can know it
  auto asked = ask(EntryId{}, set.value < kMaxSavedSets ? set : SavedSet{});
  if (!asked) return asked.error();
  if (!job.empty()) {
    area().queue(asked->ticket, std::move(job));
    return {};
  }
  lock.unlock();
  area().turns.await(asked->ticket);
  return refuseStep(asked->ticket);
}

// The caller must hold `asking` of the workspace.
Expected<Context::Impl::QueuedRun> Context::Impl::ask(EntryId entry, SavedSet set) {
  if (Status going = checkAborted(); !going) return going.error();
  if (Status there = area().ensureMemory(); !there) return fail(rank->explain(there.error()));
  auto saved = rank->savedState(set.value);
  if (!saved) return fail(saved.error());
  return QueuedRun{entry, *saved, area().memory, area().turns.take()};
}

// In the order of the caller's stream, if it has one. The caller must have the turn.
Status Context::Impl::step(const QueuedRun& asked, const std::vector<BoundTensor>& tensors,
                           StepWatcher* watcher) {
  if (!asked.mark) return stepInOrder(asked, tensors, watcher);
  Device& device = *area().device;
  const auto giveUp = [&](const Error& error) {
    transport.abort(fmt::format("rank {}: {}", transport.rank(), error.message));
    return fail(Error{transport.abortMessage()});
  };
  if (Status after = device.beginAfter(*asked.mark); !after) return giveUp(after.error());
  Status ran = stepInOrder(asked, tensors, watcher);
  Status before = device.endBefore(*asked.mark);
  return ran && !before ? Status(giveUp(before.error())) : ran;
}

Status Context::Impl::stepInOrder(const QueuedRun& asked, const std::vector<BoundTensor>& tensors,
                                  StepWatcher* watcher) {
  if (Status going = checkAborted(); !going) return going;
  recorder = trace ? &*trace : lastStep ? &*lastStep : nullptr;
  if (!trace && lastStep) lastStep->clear();
  const int64_t begin = monotonicNanoseconds();
  const StepRequest request{Workspace::Impl::ticketStep(asked.ticket),
                            number,
                            asked.entry,
                            asked.saved,
                            asked.memory.get(),
                            area().meeting.get(),
                            &tensors,
                            asked.common,
                            asked.callers};
  auto step = rank->bindStep(request, options.timeoutSeconds);
  const int64_t bound = monotonicNanoseconds();
  if (!step) return fail(explainFailure(asked, {begin, bound, bound}, step.error()));
  area().beginStep(this, asked.memory);
  if (watcher) watcher->begun();
  auto tasks = rank->executor().run(**step, {asked.memory->scratch.data, options.timeoutSeconds, recorder});
  if (!tasks) return fail(explainFailure(asked, {begin, bound, monotonicNanoseconds()}, tasks.error()));
  if (rank->finishStep(request, area().touched)) area().finishStep();
  const StepTimes times{begin, bound, monotonicNanoseconds()};
  const auto [exchangeBegin, exchangeEnd] = rank->lastExchange();
  stats = {(times.bound - begin) * 1e-9, (exchangeEnd - exchangeBegin) * 1e-9, (times.end - begin) * 1e-9,
           *tasks, (*step)->tables->rows};
  if (recorder) recordStep(asked, times);
  return {};
}

Status Context::Impl::watchedStep(const QueuedRun& asked, const std::vector<BoundTensor>& tensors,
                                  StepWatcher* watcher) {
  Status ran = step(asked, tensors, watcher);
  return watcher ? watcher->ended(ran, [this](std::string_view name) { return output(name); }) : ran;
}

void Context::Impl::recordSpan(SpanKind kind, const QueuedRun& asked, int64_t begin, int64_t end,
                               int64_t routing) {
  TraceSpan span;
  span.begin = begin;
  span.end = end;
  span.kind = kind;
  span.entry = asked.entry;
  span.slot = static_cast<int64_t>(Workspace::Impl::ticketStep(asked.ticket));
  span.index = routing;
  recorder->rank().makeRoom(1);
  recorder->rank().add(span);
}

// Spans of the rank: a run contains its bind, which contains its exchange.
void Context::Impl::recordStep(const QueuedRun& asked, const StepTimes& times) {
  recordSpan(SpanKind::kRun, asked, times.begin, times.end, recorder->addRouting(rank->step()));
  recordSpan(SpanKind::kBind, asked, times.begin, times.bound);
  recordSpan(SpanKind::kExchange, asked, rank->lastExchange().first, rank->lastExchange().second);
}

// A refused step, after which the ranks can go on, leaves no span and no file.
Error Context::Impl::explainFailure(const QueuedRun& asked, const StepTimes& times, Error error) {
  if (!recorder || !transport.isAborted()) return error;
  recorder->fail(asked.entry, static_cast<int64_t>(Workspace::Impl::ticketStep(asked.ticket)), error.message);
  if (times.end > times.bound) {
    recordStep(asked, times);
  } else {
    recordSpan(SpanKind::kRun, asked, times.begin, times.end, kNoRouting);
    recordSpan(SpanKind::kStuck, asked, times.begin, times.end);
  }
  if (!hangFile.empty()) error.message += "; " + writeUnfinished();
  return error;
}

std::string Context::Impl::writeUnfinished() try {
  const int rankNumber = transport.rank();
  Trace whole = recorder->take();
  const std::string text = chromeTrace({{&program.tables(), rankNumber, {whole}}}, nameOfClock());
  if (trace) unfinished = std::move(whole);
  const Status written = replaceFile(hangFile, std::as_bytes(std::span(text)));
  return written ? fmt::format("what rank {} did until then is in {}", rankNumber, hangFile)
                 : written.error().message;
} catch (const std::bad_alloc&) {
  return hangFile + ": out of memory";
}

Status Context::run(std::string_view name, SavedSet saved, int64_t common) {
  if (Status ours = impl_->origin.check("the context"); !ours) return ours;
  const auto entry = impl_->check(name, saved);
  if (!entry) {
    static_cast<void>(impl_->refuse(name, saved, entry.error().message, Impl::Refusal::kNow));
    return entry.error();
  }
  const auto mark = impl_->markStream();
  if (!mark) {
    static_cast<void>(impl_->refuse(name, saved, mark.error().message, Impl::Refusal::kNow));
    return mark.error();
  }
  std::unique_lock lock(impl_->area().asking);
  auto asked = impl_->ask(*entry, saved);
  lock.unlock();
  if (!asked) return asked.error();
  asked->common = common;
  asked->mark = *mark;
  asked->callers = impl_->area().callers;
  Turns& turns = impl_->area().turns;
  turns.await(asked->ticket);
  Status status = impl_->step(*asked, impl_->bound);
  turns.pass();
  return status;
}

Expected<PendingStep> Context::submit(std::string_view name, SavedSet saved,
                                      std::shared_ptr<StepWatcher> watcher) {
  if (Status ours = impl_->origin.check("the context"); !ours) return ours.error();
  const auto entry = impl_->check(name, saved);
  if (!entry) {
    static_cast<void>(impl_->refuse(name, saved, entry.error().message, Impl::Refusal::kInTurn));
    return entry.error();
  }
  const auto mark = impl_->markStream();
  if (!mark) {
    static_cast<void>(impl_->refuse(name, saved, mark.error().message, Impl::Refusal::kInTurn));
    return mark.error();
  }
  if (Status there = impl_->area().startRunner(); !there) {
    static_cast<void>(impl_->refuse(name, saved, there.error().message, Impl::Refusal::kNow));
    return there.error();
  }
  auto pending = std::make_shared<PendingStep::Impl>(impl_->transport, std::string(name));
  const auto asked = std::make_shared<Impl::QueuedRun>();  // filled before the job can run
  auto job = Workspace::Impl::makeJob(
      [context = impl_.get(), asked, bound = impl_->bound, pending, watcher](uint64_t) {
        if (pending->begin())
          pending->finish(context->watchedStep(*asked, bound, watcher.get()));
        else
          // the other ranks receive the refusal in the step's place, so that they fail this step and not a
          // later one
          static_cast<void>(context->area().refuse(asked->ticket, pending->entry(), pending->cancelled(),
                                                   context->options.timeoutSeconds));
        context->area().turns.pass();
        // under the lock: the context may end as soon as it is released
        std::lock_guard count(context->submittedMutex);
        if (--context->submitted == 0) context->settled.notify_all();
      });
  std::lock_guard lock(impl_->area().asking);
  auto ticket = impl_->ask(*entry, saved);
  if (!ticket) return ticket.error();
  *asked = std::move(*ticket);
  asked->mark = *mark;
  // nothing below allocates memory: after a failure here the turn would never end
  {
    std::lock_guard count(impl_->submittedMutex);
    ++impl_->submitted;
  }
  impl_->area().queue(asked->ticket, std::move(job));
  return PendingStep(pending);
}

Status Context::refuse(const std::string& why, SavedSet saved) {
  if (Status ours = impl_->origin.check("the context"); !ours) return ours;
  return impl_->refuse("", saved, why, Impl::Refusal::kNow);
}

Status Context::refuseSubmitted(const std::string& why, SavedSet saved) {
  if (Status ours = impl_->origin.check("the context"); !ours) return ours;
  return impl_->refuse("", saved, why, Impl::Refusal::kInTurn);
}

}  // namespace sluice

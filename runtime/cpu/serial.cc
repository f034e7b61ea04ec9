#include <fmt/format.h>

#include <algorithm>

#include "runtime/cpu/backoff.h"
#include "runtime/cpu/cpu_executor.h"
#include "runtime/exec/report.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

// The key order: when `b` is the current task, everything before it is done and nothing after it.
bool isBefore(const Step& step, const Task& a, const Task& b) {
  const auto key = [&](const Task& task) {
    const FamilyOrder& order = step.plan->verified().order()[task.family.value];
    const int64_t window = task.slot / step.plan->space(step.plan->at(task.family).space)->window;
    return std::tuple(order.segment, window, order.stage, task.family.value, task.slot, task.tile);
  };
  return key(a) < key(b);
}

// Whether a task has run when `current` is the next one.
IsDone doneBefore(const Step& step, const Task& current) {
  return [&step, current](const Task& task) { return isBefore(step, task, current); };
}

// The index of the task's first incomplete wait, or the number of waits.
size_t missingWait(const Step& step, const Task& task) {
  const SpaceKind space = step.plan->at(task.family).space;
  const std::vector<EventId>& waits = step.program().at(task.family).waits;
  size_t i = 0;
  for (; i < waits.size(); ++i) {
    const int64_t index = eventIndex(*step.tables, space, task.slot, step.program().at(waits[i]).space);
    if (!step.events->isComplete(waits[i], index)) break;
  }
  return i;
}

// `missing` becomes the wait that was the last to be found incomplete.
Status await(const Step& step, const Task& task, double timeoutSeconds, WorkerTrace& trace, int& missing) {
  if (isReady(step, task)) return {};
  trace.wait();
  Backoff backoff(step.transport->doorbell(), timeoutSeconds);
  const std::string core = text::coreName(step.program().at(task.family).core, 0);
  const IsDone isDone = doneBefore(step, task);
  while (true) {
    const uint32_t epoch = step.transport->doorbell().epoch();
    if (step.transport->isAborted()) return Error{describeAbort(step, &task, core, isDone)};
    const size_t open = missingWait(step, task);
    if (open == step.program().at(task.family).waits.size()) return {};
    missing = static_cast<int>(open);
    const int32_t segment = step.plan->verified().order()[task.family.value].segment;
    const bool inTime = backoff.wait(epoch, segment);
    const int left = inTime && backoff.isParking() ? rankThatLeftOwing(step, task) : -1;
    if (inTime && left < 0) continue;
    step.transport->abort(inTime ? describeLeft(step, task, core, left, isDone)
                                 : describeWait(step, task, core, timeoutSeconds, isDone));
    return Error{step.transport->abortMessage()};
  }
}

size_t countTasks(const Step& step) {
  int64_t tasks = 0;
  for (FamilyId family : step.plan->at(step.entry).families)
    tasks += liveSlots(*step.tables, step.plan->at(family).space) * step.program().at(family).tiles;
  return static_cast<size_t>(tasks);
}

}  // namespace

Expected<int64_t> SerialExecutor::runTasks(const CpuStep& step, const RunOptions& options) {
  const DefaultArithmetic alike;
  if (options.trace) options.trace->worker(0).makeRoom(2 * countTasks(step));
  WorkerTrace trace(options.trace, step, 0);
  std::byte* const scratch = findScratch(options, 0);
  const auto& families = step.plan->at(step.entry).families;
  const auto& order = step.plan->verified().order();
  int64_t tasks = 0;
  for (size_t first = 0; first < families.size();) {
    size_t last = first;
    int64_t windows = 0;
    for (; last < families.size() &&
           order[families[last].value].segment == order[families[first].value].segment;
         ++last) {
      const SpaceKind space = step.plan->at(families[last]).space;
      const int64_t window = step.plan->space(space)->window;
      windows = std::max(windows, (liveSlots(*step.tables, space) + window - 1) / window);
    }
    for (int64_t w = 0; w < windows; ++w) {
      for (size_t f = first; f < last; ++f) {
        const SpaceKind space = step.plan->at(families[f]).space;
        const int64_t window = step.plan->space(space)->window;
        const int64_t end = std::min(liveSlots(*step.tables, space), (w + 1) * window);
        for (int64_t slot = w * window; slot < end; ++slot) {
          for (int32_t tile = 0; tile < step.program().at(families[f]).tiles; ++tile) {
            const Task task{families[f], slot, tile};
            int missing = 0;
            if (Status ready = await(step, task, options.timeoutSeconds, trace, missing); !ready) {
              trace.stop(task, 0, missing);
              if (options.trace) options.trace->addNext(nextTask(step, task, 0, doneBefore(step, task)));
              return ready.error();
            }
            trace.beginTask(task, 0, missing);
            runTask(step, task, scratch);
            trace.endTask(task, 0);
            ++tasks;
          }
        }
      }
    }
    first = last;
  }
  return tasks;
}

}  // namespace sluice

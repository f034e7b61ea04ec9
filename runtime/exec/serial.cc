#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/exec/backoff.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/report.h"

namespace sluice {
namespace {

// Everything before `task` in key order is done, nothing after it.
bool isBefore(const Step& step, const Task& a, const Task& b) {
  const auto key = [&](const Task& task) {
    const FamilyOrder& order = step.plan->verified().order()[task.family.value];
    const int64_t window = task.slot / step.plan->space(step.plan->at(task.family).space)->window;
    return std::tuple(order.segment, window, order.stage, task.family.value, task.slot, task.tile);
  };
  return key(a) < key(b);
}

Status await(const Step& step, const Task& task, double timeoutSeconds) {
  if (isReady(step, task)) return {};
  Backoff backoff(step.transport->doorbell(), timeoutSeconds);
  while (true) {
    const uint32_t epoch = step.transport->doorbell().epoch();
    if (step.transport->isAborted()) return Error{step.transport->abortMessage()};
    if (isReady(step, task)) return {};
    const int32_t segment = step.plan->verified().order()[task.family.value].segment;
    if (backoff.wait(epoch, segment)) continue;
    step.transport->abort(describeWait(step, task, 0, timeoutSeconds,
                                       [&](const Task& other) { return isBefore(step, other, task); }));
    return Error{step.transport->abortMessage()};
  }
}

}  // namespace

Expected<Scratch> Scratch::allocate(size_t bytes) {
  constexpr size_t kAddresses = size_t{1} << 47;  // no process has more
  void* const data =
      bytes < kAddresses ? std::aligned_alloc(64, std::max<size_t>(64, (bytes + 63) / 64 * 64)) : nullptr;
  if (data != nullptr) return Scratch(static_cast<std::byte*>(data));
  return Error{fmt::format("could not allocate {} bytes of scratch memory for a worker", bytes)};
}

void Scratch::Free::operator()(std::byte* data) const { std::free(data); }

Expected<int64_t> runSerial(const Step& step, const Scratch& scratch, double timeoutSeconds) {
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
      windows = std::max(windows, (liveSlots(step, space) + window - 1) / window);
    }
    for (int64_t w = 0; w < windows; ++w) {
      for (size_t f = first; f < last; ++f) {
        const SpaceKind space = step.plan->at(families[f]).space;
        const int64_t window = step.plan->space(space)->window;
        const int64_t end = std::min(liveSlots(step, space), (w + 1) * window);
        for (int64_t slot = w * window; slot < end; ++slot) {
          for (int32_t tile = 0; tile < step.program().at(families[f]).tiles; ++tile) {
            const Task task{families[f], slot, tile};
            if (Status ready = await(step, task, timeoutSeconds); !ready) return ready.error();
            runTask(step, task, scratch.data());
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

#include "runtime/gpu/gpu_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/exec/report.h"

namespace sluice {
namespace {

// A rank whose blocks have reported that they are stuck aborts at once; other ranks wait this long for its
// message.
constexpr std::chrono::milliseconds kForMessage{2000};

bool isOver(const StepTables& tables, const StepOutcome& outcome) {
  for (size_t list = 0; list + 1 < tables.lists.size(); ++list)
    if (outcome.heads[list] != tables.lists[list + 1]) return false;
  return std::ranges::all_of(outcome.reports,
                             [](const gpu::StuckReport& each) { return each.stuck == gpu::Stuck::kNo; });
}

// The cursor of the list in which the reported task is.
const LaneCursor& findCursor(const StepTables& tables, size_t report, const gpu::StuckReport& stuck) {
  const bool isComm = report % gpu::kRoles == static_cast<size_t>(gpu::Role::kComm);
  const int lanes = tables.lanes[0] + tables.lanes[1];
  const auto list = static_cast<size_t>(static_cast<int>(stuck.core) * lanes +
                                        (isComm ? tables.lanes[0] : 0) + static_cast<int>(stuck.lane));
  return tables.cursors[list];
}

}  // namespace

Expected<int64_t> GpuExecutor::run(const Step& step, const RunOptions& options) {
  const auto abort = [&step](const std::string& why) {
    step.transport->abort(why);
    return Error{step.transport->abortMessage()};
  };
  if (options.trace != nullptr)
    return abort(fmt::format("rank {}: steps on a GPU cannot be traced", step.rank));
  const auto staged = staging_.begin(step);
  if (!staged) return abort(fmt::format("rank {}: {}", step.rank, staged.error().message));
  const auto tasks = runStaged(step, *staged, options.timeoutSeconds);
  if (!tasks) return abort(tasks.error().message);
  return tasks;
}

Expected<int64_t> GpuExecutor::runStaged(const Step& step, const Step& staged, double timeoutSeconds) {
  const auto here = [&step](const Error& error) {
    return Error{fmt::format("rank {}: {}", step.rank, error.message)};
  };
  auto tables = makeTables(staged, staging_, backend_, progress_);
  if (!tables) return here(tables.error());
  const auto outcome = backend_.run(*tables, *step.transport, timeoutSeconds);
  if (!outcome) return here(outcome.error());
  const SymmetricMemory& words = step.events->words();
  if (!isOver(*tables, *outcome)) {
    std::vector<std::byte> copy(words.bytes);
    if (Status copied = backend_.copyOut(copy.data(), words.data, copy.size()); !copied)
      return here(copied.error());
    EventTable events = step.events->withWords(copy.data());
    Step failed = step;
    failed.events = &events;
    return Error{failure(failed, *tables, *outcome, timeoutSeconds)};
  }
  Status ended = staging_.end(step);
  step.events->forWords(*plan_, step.entry, [&](size_t offset, size_t bytes) {
    if (ended) ended = backend_.zero(words.data + offset, bytes);
  });
  if (!ended) return here(ended.error());
  return tables->tasks;
}

std::string GpuExecutor::failure(const Step& step, StepTables& tables, const StepOutcome& outcome,
                                 double seconds) {
  for (size_t list = 0; list + 1 < tables.lists.size(); ++list)
    for (uint32_t record = tables.lists[list]; record < outcome.heads[list]; ++record)
      if (tables.isFirst[record]) tables.cursors[list].next(step);
  const auto done = [&](const Task& task) { return progress_.isTaken(*plan_, task); };

  const LaneCursor* first =
      nullptr;  // the earliest task that is reported to wait, which is nearest to the cause
  for (size_t i = 0; i < outcome.reports.size(); ++i) {
    const gpu::StuckReport& stuck = outcome.reports[i];
    if (stuck.stuck == gpu::Stuck::kNo) continue;
    if (stuck.stuck != gpu::Stuck::kEvent)
      return fmt::format("rank {}, core {}: the kernel did not {} for {:g} s", step.rank, stuck.core,
                         stuck.stuck == gpu::Stuck::kRecord ? "take a task" : "use what was loaded", seconds);
    const LaneCursor& cursor = findCursor(tables, i, stuck);
    const auto order = [&](const LaneCursor& c) { return plan_->verified().order()[c.task().family.value]; };
    if (first == nullptr || order(cursor) < order(*first)) first = &cursor;
  }
  if (first != nullptr)
    return describeWait(step, first->task(), coreName(step.program(), *first), seconds, done);

  const auto until = std::chrono::steady_clock::now() + kForMessage;
  while (!step.transport->isAborted() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto waiting = std::ranges::find_if(
      tables.cursors, [&](const LaneCursor& c) { return !c.done() && !isReady(step, c.task()); });
  if (waiting == tables.cursors.end()) return describeAbort(step, nullptr, "", done);
  const Task task = waiting->task();
  return describeAbort(step, &task, coreName(step.program(), *waiting), done);
}

}  // namespace sluice

#include "runtime/exec/lane_cursor.h"

#include <algorithm>
#include <limits>

#include "runtime/program/words.h"

namespace sluice {
namespace {

constexpr uint64_t kFinished = std::numeric_limits<uint64_t>::max();

uint64_t packProgress(int64_t window, size_t position) {
  return static_cast<uint64_t>(window) << 24 | position;
}

// The seat of the lane's core `core` in window `window`.
size_t findSeat(const Lane& lane, int core, int64_t window) {
  const int64_t cores = static_cast<int64_t>(lane.seats.size());
  return static_cast<size_t>(((core - window * lane.rotation) % cores + cores) % cores);
}

// The index of a lane's first core among the cores of all kinds.
int findFirstCore(const TaskProgram& program, const Lane& lane) {
  return lane.firstCore + (lane.core == CoreKind::kVector ? program.cubeCores : 0);
}

// By lane, the index of its first core's progress; finally the total number.
std::vector<size_t> progressPlaces(const TaskProgram& program) {
  std::vector<size_t> places = {0};
  for (const Lane& lane : program.lanes) places.push_back(places.back() + lane.seats.size());
  return places;
}

}  // namespace

int countCores(const TaskProgram& program) { return program.cores + program.cubeCores + program.vectorCores; }

LaneProgress::LaneProgress(const TaskProgram& program)
    : first_(progressPlaces(program)), progress_(first_.back()) {}

LanePlace findPlace(const Plan& plan, const Task& task) {
  const Lane& lane = plan.program().at(plan.at(task.family).lane);
  const int64_t slots = plan.program().at(lane.space).window, cores = std::ssize(lane.seats);
  LanePlace place;
  place.window = task.slot / slots;
  for (int64_t seat = 0; seat < cores; ++seat) {
    const auto& tasks = lane.seats[static_cast<size_t>(seat)];
    const auto found = std::ranges::find_if(tasks, [&](const TaskRecord& record) {
      return record.family == task.family && record.slot == task.slot % slots &&
             record.tile == static_cast<uint32_t>(task.tile);
    });
    if (found == tasks.end()) continue;
    place.core = static_cast<int>((seat + place.window * lane.rotation) % cores);
    place.position = static_cast<size_t>(found - tasks.begin());
    return place;
  }
  return place;
}

bool LaneProgress::isTaken(const Plan& plan, const Task& task) const {
  const LanePlace place = findPlace(plan, task);
  const auto& progress = progress_[first_[plan.at(task.family).lane.value] + place.core];
  return progress.load(std::memory_order_relaxed) > packProgress(place.window, place.position);
}

void LaneCursor::start(const Step& step) {
  live_ = liveSlots(*step.tables, step.program().at(step.program().at(lane_).space).kind);
  window_ = 0;
  task_ = {};
  enterWindow(step);
  settle(step);
}

int64_t LaneCursor::maxTasks(const Step& step) const {
  const Lane& lane = step.program().at(lane_);
  const Space& space = step.program().at(lane.space);
  size_t longest = 0;
  for (const auto& seat : lane.seats) longest = std::max(longest, seat.size());
  return (liveSlots(*step.tables, space.kind) + space.window - 1) / space.window *
         static_cast<int64_t>(longest);
}

void LaneCursor::enterWindow(const Step& step) {
  const Lane& lane = step.program().at(lane_);
  firstSlot_ = window_ * step.program().at(lane.space).window;
  seat_ = lane.seats[findSeat(lane, core_, window_)];
  position_ = 0;
}

// Advances to the next record whose slot is live, or to the end.
void LaneCursor::settle(const Step& step) {
  while (firstSlot_ < live_) {
    while (position_ < seat_.size() && firstSlot_ + seat_[position_].slot >= live_) ++position_;
    if (position_ < seat_.size()) {
      done_ = false;
      await(step);
      progress_->store(packProgress(window_, position_), std::memory_order_relaxed);
      return;
    }
    ++window_;
    enterWindow(step);
  }
  done_ = true;
  progress_->store(kFinished, std::memory_order_relaxed);
}

// All tiles of one slot wait for the same events.
void LaneCursor::await(const Step& step) {
  const TaskRecord& record = seat_[position_];
  const int64_t slot = firstSlot_ + record.slot;
  const bool isSame = task_.family == record.family && task_.slot == slot;
  task_ = {record.family, slot, static_cast<int32_t>(record.tile)};
  if (isSame) return;
  const SpaceKind space = step.plan->at(record.family).space;
  waits_ = {};
  size_t i = 0;
  for (EventId wait : step.program().at(record.family).waits)
    waits_[i++] =
        step.events->counter(wait, eventIndex(*step.tables, space, slot, step.program().at(wait).space));
}

LaneCursors makeCursors(const Plan& plan, EntryId entry, int worker, int workers, LaneProgress& progress) {
  const TaskProgram& program = plan.program();
  LaneCursors cursors;
  for (LaneId id : plan.at(entry).lanes) {
    const Lane& lane = program.at(id);
    std::vector<LaneCursor> cores;
    const int served = ((worker - findFirstCore(program, lane)) % workers + workers) % workers;  // the first
    for (int core = served; core < static_cast<int>(lane.seats.size()); core += workers)
      cores.emplace_back(id, core, progress.at(id, core));
    cursors.push_back(std::move(cores));
  }
  return cursors;
}

LaneCursor* readyHead(LaneCursors& cursors, bool& anyLeft) {
  for (auto& lane : cursors) {
    LaneCursor* first = nullptr;
    for (LaneCursor& cursor : lane) {
      if (cursor.done()) continue;
      anyLeft = true;
      const auto place = [](const LaneCursor& c) { return std::pair(c.task().slot, c.task().tile); };
      if (first && place(*first) < place(cursor)) continue;
      if (cursor.ready()) first = &cursor;
    }
    if (first) return first;
  }
  return nullptr;
}

const LaneCursor& earliestHead(const Plan& plan, const LaneCursors& cursors) {
  const LaneCursor* first = nullptr;
  const auto order = [&](const LaneCursor& c) { return plan.verified().order()[c.task().family.value]; };
  for (const auto& lane : cursors)
    for (const LaneCursor& cursor : lane)
      if (!cursor.done() && (!first || order(cursor) < order(*first))) first = &cursor;
  return *first;
}

std::string coreName(const TaskProgram& program, const LaneCursor& cursor) {
  const Lane& lane = program.at(cursor.lane());
  return text::coreName(lane.core, lane.firstCore + cursor.core());
}

}  // namespace sluice

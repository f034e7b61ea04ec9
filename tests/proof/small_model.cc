#include "tests/proof/small_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <string_view>
#include <unordered_set>

namespace sluice {

SmallModel::State SmallModel::start() const {
  State state{std::vector<uint8_t>(seats_.size()), std::vector<char>(tasks_.size()),
              std::vector<int64_t>(thresholds_.size()), std::vector<int>(ranks_)};
  for (const Task& task : tasks_) ++state.remaining[task.rank];
  return state;
}

// Runs the head of the seat.
void SmallModel::run(State& state, size_t seat) const {
  const int id = seats_[seat][state.positions[seat]++];
  state.done[id] = 1;
  --state.remaining[tasks_[id].rank];
  for (const auto& [counter, count] : tasks_[id].signals) state.counters[counter] += count;
}

SmallModel::State SmallModel::stateOf(std::string_view positions) const {
  State state = start();
  for (size_t seat = 0; seat < seats_.size(); ++seat)
    while (state.positions[seat] < static_cast<uint8_t>(positions[seat])) run(state, seat);
  return state;
}

bool SmallModel::isEnabled(const State& state, int task) const {
  return std::all_of(tasks_[task].waits.begin(), tasks_[task].waits.end(),
                     [&](int counter) { return state.counters[counter] >= thresholds_[counter]; });
}

bool SmallModel::isAtHead(const State& state, int task) const {
  for (size_t seat = 0; seat < seats_.size(); ++seat)
    if (state.positions[seat] < seats_[seat].size() && seats_[seat][state.positions[seat]] == task)
      return true;
  return false;
}

// What is wrong with running `id` in this state, in which it can run.
std::string SmallModel::stepError(const State& state, int id) const {
  const Task& task = tasks_[id];
  for (int peer : task.peers)
    if (state.remaining[peer] == 0)
      return fmt::format("{} reaches rank {}, which has finished", task.name, peer);
  for (const auto& [place, use] : task.reads) {
    const int writer = places_[place].uses[use].writer;
    if (writer >= 0 && writer != id && !state.done[writer])
      return fmt::format("{} can run before {}, which writes what it reads", task.name, tasks_[writer].name);
  }
  for (const auto& [place, own] : task.writes) {
    const auto& uses = places_[place].uses;
    for (size_t other = 0; other < uses.size(); ++other) {
      if (static_cast<int>(other) == own) continue;
      const auto isDone = [&](int user) { return user == id || state.done[user]; };
      const auto begun = [&](int user) { return user != id && state.done[user]; };
      const bool all = std::all_of(uses[other].users.begin(), uses[other].users.end(), isDone);
      const bool any = std::any_of(uses[other].users.begin(), uses[other].users.end(), begun);
      if (any && (!all || uses[other].outlives))
        return fmt::format("{} can overwrite what is still in use", task.name);
    }
  }
  return "";
}

// No task can run any more.
std::string SmallModel::endError(const State& state) const {
  for (size_t seat = 0; seat < seats_.size(); ++seat)
    if (state.positions[seat] < seats_[seat].size())
      return fmt::format("no task can run, and {} waits", tasks_[seats_[seat][state.positions[seat]]].name);
  for (size_t i = 0; i < thresholds_.size(); ++i)
    if (state.counters[i] != thresholds_[i])
      return fmt::format("{} ends at {} of {}", counterNames_[i], state.counters[i], thresholds_[i]);
  return "";
}

SmallModel::Verdict SmallModel::explore(int64_t limit) const {
  Verdict verdict{error_, 0, true};
  std::unordered_set<std::string> seen;
  std::deque<const std::string*> open;
  const auto visit = [&](std::string positions) {
    const auto [place, isNew] = seen.insert(std::move(positions));
    if (isNew) open.push_back(&*place);
  };
  visit(std::string(seats_.size(), '\0'));
  while (!open.empty() && verdict.error.empty()) {
    if (verdict.states == limit) return verdict.complete = false, verdict;
    ++verdict.states;
    const std::string& positions = *open.front();
    open.pop_front();
    const State state = stateOf(positions);
    bool any = false;
    for (size_t seat = 0; seat < seats_.size() && verdict.error.empty(); ++seat) {
      if (state.positions[seat] == seats_[seat].size()) continue;
      const int task = seats_[seat][state.positions[seat]];
      if (!isEnabled(state, task)) continue;
      any = true;
      verdict.error = stepError(state, task);
      std::string next = positions;
      ++next[seat];
      visit(std::move(next));
    }
    if (!any) verdict.error = endError(state);
  }
  return verdict;
}

SmallModel::State SmallModel::largestWithout(int held, int other) const {
  State state = start();
  for (bool any = true; any;) {
    any = false;
    for (size_t seat = 0; seat < seats_.size(); ++seat) {
      while (state.positions[seat] < seats_[seat].size()) {
        const int task = seats_[seat][state.positions[seat]];
        if (task == held || task == other || !isEnabled(state, task)) break;
        run(state, seat);
        any = true;
      }
    }
  }
  return state;
}

// Says which task can come before `held` although it needs it, or which whole rank that `held` reaches can
// end before it; empty: none.
std::string SmallModel::overtakenError(int held, const State& without) const {
  const Task& task = tasks_[held];
  for (int peer : task.peers)
    if (without.remaining[peer] == 0)
      return fmt::format("{} can reach rank {} when it has finished", task.name, peer);
  for (const auto& [place, own] : task.writes) {
    for (int user : places_[place].uses[own].users)
      if (user != held && without.done[user])
        return fmt::format("{} can run before {}, which writes what it reads", tasks_[user].name, task.name);
  }
  return "";
}

// A user of another buffer that can be done when `writer` overwrites it, while one more is not.
std::string SmallModel::sharedError(int writer, const State& without) const {
  for (const auto& [place, own] : tasks_[writer].writes) {
    const auto& uses = places_[place].uses;
    for (size_t other = 0; other < uses.size(); ++other) {
      if (static_cast<int>(other) == own) continue;
      for (int left : uses[other].users) {
        if (uses[other].outlives && without.done[left])
          return fmt::format("{} can overwrite what {} used last", tasks_[writer].name, tasks_[left].name);
        if (left == writer) continue;
        bool any = false;  // looked at only where a user can come before at all
        for (int user : uses[other].users)
          any = any || (user != left && user != writer && without.done[user]);
        if (!any) continue;
        const State both = largestWithout(writer, left);
        if (!isEnabled(both, writer) || !isAtHead(both, writer)) continue;
        for (int user : uses[other].users)
          if (user != left && user != writer && both.done[user])
            return fmt::format("{} can overwrite what {} still needs", tasks_[writer].name,
                               tasks_[left].name);
      }
    }
  }
  return "";
}

SmallModel::Verdict SmallModel::reduced() const {
  Verdict verdict{error_, 1, true};
  if (verdict.error.empty()) verdict.error = endError(largestWithout(-1, -1));
  for (int held = 0; held < static_cast<int>(tasks_.size()) && verdict.error.empty(); ++held) {
    if (tasks_[held].writes.empty() && tasks_[held].peers.empty()) continue;
    const State without = largestWithout(held, -1);
    ++verdict.states;
    verdict.error = overtakenError(held, without);
    if (verdict.error.empty()) verdict.error = sharedError(held, without);
  }
  return verdict;
}

}  // namespace sluice

#include "tools/explain/explain_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/cost/task_cost.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "runtime/program/words.h"
#include "runtime/trace/task_work.h"

namespace sluice::tools {
namespace {

constexpr size_t kMaxNamed = 8;

// A whole number at the beginning of `text`, which is removed.
template <class Number>
bool takeNumber(std::string_view& text, Number& number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

std::string plural(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string bytesText(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  return bytes < 1e6 ? fmt::format("{:.1f} KB", bytes * 1e-3) : fmt::format("{:.2f} MB", bytes * 1e-6);
}

class TaskText {
 public:
  TaskText(const AllSteps& steps, int rank, const Task& task, const Rates* rates, const std::string& target)
      : steps_(steps),
        program_(steps.program()),
        rank_(rank),
        task_(task),
        family_(program_.at(task.family)),
        rates_(rates),
        target_(target) {}

  std::string print() {
    head();
    operands();
    waits();
    signals();
    lane();
    work();
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format("  {:<11}", label) + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  SpaceKind space() const { return steps_.plan.at(task_.family).space; }
  const RoutingTables& tables() const { return steps_.tables[static_cast<size_t>(rank_)]; }
  SlotWork slot() const {
    const Space* const tokens = steps_.plan.space(SpaceKind::kTokens);
    return slotWork(tables(), space(), task_.slot, tokens == nullptr ? 0 : tokens->slotSize);
  }

  void head() {
    text_ += fmt::format("{}/{}[{},{}] of rank {}\n", program_.at(family_.entry).name, family_.name,
                         task_.slot, task_.tile, rank_);
    line("op", "{} over {}, tile {} of {}, {}", text::word(family_.op), text::word(space()), task_.tile,
         family_.tiles, family_.source);
    const int64_t slots = liveSlots(tables(), space());
    std::string of = fmt::format("slot {} of {}", task_.slot, slots);
    if (isRemote(space())) {
      const Piece& piece = findPiece(tables(), space(), task_.slot);
      of += fmt::format(", a piece for rank {}: its slot {}, expert {} of that rank", piece.peer, piece.slot,
                        piece.expert);
    } else if (space() == SpaceKind::kRows) {
      of += fmt::format(", expert {} of the rank", tables().slots[static_cast<size_t>(task_.slot)].expert);
    }
    line("rows", "{:.0f} {}, {}", slot().rows, space() == SpaceKind::kTokens ? "tokens" : "rows", of);
  }

  std::string names(const std::vector<BufferId>& buffers) const {
    std::string list;
    for (const BufferId id : buffers)
      if (id) list += (list.empty() ? "" : ", ") + program_.at(id).name;
    return list;
  }

  void operands() {
    line("reads", "{}", names(family_.reads));
    line("writes", "{}", names(family_.writes));
  }

  std::string eventText(const EventAt& at) const {
    return fmt::format("{}[{}]{}", program_.at(at.event).name, at.index,
                       at.rank == rank_ ? "" : fmt::format(" of rank {}", at.rank));
  }

  // "dispatch[3,0] of rank 1 (40 rows), and 3 more"
  std::string listed(const std::vector<SlotTasks>& tasks, bool withRows) const {
    std::string list;
    for (size_t i = 0; i < std::min(tasks.size(), kMaxNamed); ++i) {
      const SlotTasks& each = tasks[i];
      const Family& family = program_.at(each.family);
      list += fmt::format("{}{}[{},{}]", i == 0 ? "" : ", ", family.name, each.slot,
                          family.tiles == 1 ? "0" : fmt::format("0..{}", family.tiles - 1));
      if (each.rank != rank_) list += fmt::format(" of rank {}", each.rank);
      if (withRows) list += fmt::format(" ({})", plural(each.amount, "row"));
    }
    if (tasks.size() > kMaxNamed)
      list += fmt::format(", and {} more", plural(static_cast<int64_t>(tasks.size() - kMaxNamed), "slot"));
    return list.empty() ? "nobody" : list;
  }

  void waits() {
    const std::vector<EventAt> waits = listWaits(steps_, rank_, task_);
    if (waits.empty()) line("waits for", "nothing");
    for (const EventAt& at : waits) {
      const bool ofRows = program_.at(at.event).unit == EventUnit::kRows;
      line("waits for", "{} = {}, which adds up from {}", eventText(at),
           plural(static_cast<int64_t>(findThreshold(steps_, at)), ofRows ? "row" : "task"),
           listed(listProducers(steps_, at), ofRows));
    }
  }

  void signals() {
    const std::vector<EventAt> signals = listSignals(steps_, rank_, task_);
    if (signals.empty()) line("signals", "nothing");
    for (const EventAt& at : signals) {
      const bool ofRows = program_.at(at.event).unit == EventUnit::kRows;
      line("signals", "{} + {}, for which {} waits", eventText(at),
           ofRows ? plural(findPiece(tables(), space(), task_.slot).rows, "row") : "1 task",
           listed(waitersFor(steps_, at), false));
    }
  }

  void lane() {
    const Lane& lane = program_.at(steps_.plan.at(task_.family).lane);
    const LanePlace place = findPlace(steps_.plan, task_);
    const auto lanes = std::ranges::count(program_.lanes, lane.entry, &Lane::entry);
    line("lane", "{}, number {} of {} by priority; {}, window {}, place {} of its seat", lane.name,
         lane.priority + 1, lanes, text::coreName(lane.core, lane.firstCore + place.core), place.window,
         place.position);
  }

  void work() {
    const SlotWork own = slot();
    const TaskWork work = countWork(program_, task_.family, task_.tile, static_cast<int64_t>(own.rows));
    line("work", "{:.3f} GFLOP, {} of operands", work.flops * 1e-9, bytesText(work.bytes));
    if (rates_ == nullptr) return line("predicted", "nothing: target '{}' has no rates", target_);
    const TaskCost cost = taskCost(program_, family_, own.rows, own.reuse, TaskRates(*rates_));
    line("predicted",
         "{:.1f} us on '{}', if no other task uses the memory: products {:.1f}, element-wise {:.1f}, waiting "
         "for memory {:.1f}, "
         "the task itself {:.2f}; {} read, {} written",
         cost.seconds() * 1e6, target_, cost.product * 1e6, cost.vector * 1e6, cost.memory * 1e6,
         cost.task * 1e6, bytesText(cost.read), bytesText(cost.written));
  }

  const AllSteps& steps_;
  const TaskProgram& program_;
  const int rank_;
  const Task task_;
  const Family& family_;
  const Rates* const rates_;
  const std::string& target_;
  std::string text_;
};

}  // namespace

Expected<TaskQuery> parseTaskQuery(std::string_view text) {
  const Error wrong{fmt::format(
      "found '{}', expected FAMILY, FAMILY[SLOT] or FAMILY[SLOT,TILE], with ENTRY/ before it or not", text)};
  TaskQuery query;
  const size_t bracket = text.find('[');
  std::string_view name = text.substr(0, bracket);
  if (const size_t slash = name.find('/'); slash != std::string_view::npos) {
    query.entry = name.substr(0, slash);
    name.remove_prefix(slash + 1);
  }
  query.family = name;
  if (name.empty()) return wrong;
  if (bracket == std::string_view::npos) return query;
  std::string_view rest = text.substr(bracket + 1);
  if (!takeNumber(rest, query.slot)) return wrong;
  if (rest.starts_with(',')) {
    rest.remove_prefix(1);
    if (!takeNumber(rest, query.tile)) return wrong;
  }
  if (rest != "]") return wrong;
  return query;
}

Expected<FamilyId> findFamily(const TaskProgram& program, const TaskQuery& query) {
  std::string known;
  FamilyId found;
  for (uint32_t f = 0; f < program.families.size(); ++f) {
    const Family& family = program.families[f];
    const std::string& entry = program.at(family.entry).name;
    known += fmt::format("{}{}/{}", known.empty() ? "" : ", ", entry, family.name);
    if (family.name != query.family || (!query.entry.empty() && entry != query.entry)) continue;
    if (found)
      return Error{fmt::format("--task: several entries have a family '{}', expected one of {}/{} and {}/{}",
                               query.family, program.at(program.at(found).entry).name, query.family, entry,
                               query.family)};
    found = FamilyId{f};
  }
  if (found) return found;
  return Error{fmt::format("--task: no family '{}{}{}', expected one of {}", query.entry,
                           query.entry.empty() ? "" : "/", query.family, known)};
}

Expected<std::string> explainTask(const AllSteps& steps, int rank, FamilyId id, const TaskQuery& query,
                                  const Rates* rates, const std::string& target) {
  const Family& family = steps.program().at(id);
  const int64_t slots = liveSlots(steps.tables[static_cast<size_t>(rank)], steps.plan.at(id).space);
  if (query.slot >= slots)
    return Error{fmt::format("--task: slot {} of family '{}', which has {} at rank {} in this step",
                             query.slot, family.name, plural(slots, "slot"), rank)};
  if (query.tile >= family.tiles)
    return Error{fmt::format("--task: tile {} of family '{}', which has {}", query.tile, family.name,
                             plural(family.tiles, "tile"))};
  return TaskText(steps, rank, {id, query.slot, query.tile}, rates, target).print();
}

}  // namespace sluice::tools

#include "compiler/analysis/cost/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "compiler/analysis/cost/seen_sizes.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

constexpr size_t kMaxCandidates = 12;  // the number of candidates that are simulated

constexpr int32_t kSlots[] = {16,  32,  48,  64,  80,  96,  112, 128, 160, 192,
                              224, 256, 320, 384, 448, 512, 640, 768, 1024};

// `first` and its doublings, with the values halfway between them, up to the first that is at least `most`.
// Tiles narrower than 64 columns would fetch a weight line by line.
std::vector<int32_t> ladder(int32_t first, int64_t most) {
  std::vector<int32_t> steps;
  for (int64_t size = first; size <= kMaxDim; size *= 2) {
    steps.push_back(static_cast<int32_t>(size));
    if (size >= most) break;
    if (size >= 32 && size + size / 2 <= kMaxDim) steps.push_back(static_cast<int32_t>(size + size / 2));
    if (size + size / 2 >= most) break;
  }
  return steps;
}

class Chooser {
 public:
  Chooser(CostProblem problem, const Rates& rates, const Expectation& expectation, const CutSizes& start,
          const FixedSizes& fixed)
      : problem_(std::move(problem)),
        rates_(rates),
        rows_(expectRows(expectation, problem_.step())),
        sizes_(start),
        fixed_(fixed) {
    attempt(sizes_);
  }

  // 1. Slots and columns of products together, because both determine the work of a task. 2. The tile of
  // weight gradients. 3. Slots of tokens. The second round sees what the first has chosen, and the third
  // looks for less work among sizes that are equally fast.
  void run() {
    for (int round = 0; round < 3; ++round) {
      lighter_ = round == 2;
      settle();
      chooseSlots();
      settle();
      chooseGradTile();
      settle();
      chooseTokens();
      settle();
    }
  }

  // The best sizes by the model, best first; the given ones if nothing can be cut.
  std::vector<CutSizes> candidates() const {
    return seen_.empty() ? std::vector{sizes_} : seen_.candidates(kMaxCandidates);
  }
  void take(const CutSizes& sizes) {
    sizes_ = sizes;
    cutBy(sizes_, problem_.program);
  }

  const CutSizes& sizes() const { return sizes_; }
  const CostProblem& problem() const { return problem_; }
  const ExpectedRows& rows() const { return rows_; }
  LayerCost cost() const { return computeCost(problem_, rates_, rows_); }

  std::vector<Decision> decisions() const {
    std::vector<Decision> out;
    const auto add = [&](DecidedSize size, bool fixed, const std::string& what, const std::string& why) {
      out.push_back({"", what, fixed ? "declared in the graph or given by hand" : why, {}, size});
    };
    add(kDecidedRows, fixed_.slotRows, fmt::format("slots of {} rows", sizes_.slotRows),
        why([](const CutSizes& s) { return int64_t{s.slotRows}; }, slotText));
    if (has([](const Family& f) { return isGmm(f); }))
      add(kDecidedColumns, fixed_.tiles,
          fmt::format("tiles of at most {} columns of a product", sizes_.tiles.gmmColumns),
          why([](const CutSizes& s) { return int64_t{s.tiles.gmmColumns}; }, columnText));
    if (has([](const Family& f) { return findInfo(f.op).isSum(); }))
      add(kDecidedGradTile, fixed_.tiles,
          fmt::format("tiles of at most {} of a weight gradient", gradText(sizes_)),
          why(
              [](const CutSizes& s) {
                return int64_t{s.tiles.weightGradRows} << 32 | s.tiles.weightGradColumns;
              },
              gradText));
    if (has([&](const Family& f) { return problem_.familySpace(f) == SpaceKind::kTokens; }))
      add(kDecidedTokens, fixed_.tokenSlot, fmt::format("slots of {} tokens", sizes_.tokenSlot),
          why([](const CutSizes& s) { return int64_t{s.tokenSlot}; }, tokenText));
    if (const std::string lighter = seen_.whyNotFastest(sizes_); !lighter.empty())
      out.push_back({"", sizesText(sizes_), lighter, {}, 0});
    return out;
  }

 private:
  static bool isGmm(const Family& family) { return findInfo(family.op).multiplies(); }
  std::string why(const std::function<int64_t(const CutSizes&)>& valueOf,
                  const std::function<std::string(const CutSizes&)>& text) const {
    return seen_.why(sizes_, valueOf, text);
  }
  static std::string slotText(const CutSizes& s) { return fmt::format("{} rows", s.slotRows); }
  static std::string columnText(const CutSizes& s) { return fmt::format("{} columns", s.tiles.gmmColumns); }
  static std::string tokenText(const CutSizes& s) { return fmt::format("{} tokens", s.tokenSlot); }
  static std::string gradText(const CutSizes& s) {
    return fmt::format("{} x {}", s.tiles.weightGradRows, s.tiles.weightGradColumns);
  }

  bool has(const std::function<bool(const Family&)>& wanted) const {
    return std::any_of(problem_.program.families.begin(), problem_.program.families.end(), wanted);
  }
  int64_t longest(const std::function<int64_t(const Family&)>& length) const {
    int64_t most = 1;
    for (const Family& family : problem_.program.families) most = std::max(most, length(family));
    return most;
  }

  // Sizes given by hand are used unchanged, or refused where families are formed.
  bool fits() const {
    if (fixed_.tiles) return true;
    return std::all_of(problem_.program.families.begin(), problem_.program.families.end(),
                       [](const Family& family) { return countTiles(family) <= kMaxTableTasks; });
  }

  void attempt(const CutSizes& sizes) {
    cutBy(sizes, problem_.program);
    if (fits()) seen_.add(sizes, computeCost(problem_, rates_, rows_));
  }
  void settle() {
    if (!seen_.empty()) take((lighter_ ? seen_.preferred() : seen_.fastest()).sizes);
  }

  void chooseSlots() {
    const double hottest = rows_.groups.empty() ? 0 : rows_.groups.front().rows;
    std::vector<int32_t> slots = {sizes_.slotRows}, columns = {sizes_.tiles.gmmColumns};
    if (!fixed_.slotRows)
      for (int32_t slot : kSlots) {
        slots.push_back(slot);
        if (slot >= hottest) break;
      }
    if (!fixed_.tiles)
      for (int32_t size : ladder(64, longest([](const Family& f) {
                                   return int64_t{weightParts(f.op, f.tiling)} * f.tiling.n;
                                 })))
        columns.push_back(size);
    const CutSizes start = sizes_;
    for (int32_t slot : slots)
      for (int32_t column : columns) {
        CutSizes sizes = start;
        sizes.slotRows = slot;
        sizes.tiles.gmmColumns = column;
        attempt(sizes);
      }
  }

  void chooseGradTile() {
    const auto ofGrad = [](int32_t Tiling::* length) {
      return [length](const Family& f) {
        return findInfo(f.op).isSum() ? int64_t{f.tiling.*length} : int64_t{0};
      };
    };
    if (fixed_.tiles || !has([](const Family& f) { return findInfo(f.op).isSum(); })) return;
    const CutSizes start = sizes_;
    for (int32_t rows : ladder(64, longest(ofGrad(&Tiling::m))))
      for (int32_t columns : ladder(64, longest(ofGrad(&Tiling::n)))) {
        CutSizes sizes = start;
        sizes.tiles.weightGradRows = rows;
        sizes.tiles.weightGradColumns = columns;
        attempt(sizes);
      }
  }

  void chooseTokens() {
    if (fixed_.tokenSlot) return;
    const CutSizes start = sizes_;
    for (int32_t tokens = 4; tokens <= 1 << 12; tokens *= 2) {
      CutSizes sizes = start;
      sizes.tokenSlot = tokens;
      attempt(sizes);
      if (tokens >= problem_.program.maxTokens) break;
    }
  }

  CostProblem problem_;
  const Rates& rates_;
  const ExpectedRows rows_;
  CutSizes sizes_;
  const FixedSizes fixed_;
  SeenSizes seen_;
  bool lighter_ = false;
};

std::string windowText(const Windows& w) {
  return fmt::format("windows of {} slots of tokens, {} of rows, {} sends, {} returns, {} experts", w.tokens,
                     w.rows, w.sends, w.returns, w.experts);
}

// When the family runs, if its entry was simulated.
std::string spanText(const ScheduleChoice& schedule, const Family& family, size_t f) {
  if (family.entry.value >= schedule.entries.size()) return {};
  const SimResult& result = schedule.entries[family.entry.value].result;
  const SimFamily& run = result.families[f];
  if (run.tasks == 0) return {};
  const auto percent = [&](SimTime time) { return 100 * toSeconds(time) / toSeconds(result.end); };
  return fmt::format("; simulated from {:.0f}% to {:.0f}% of the entry", percent(run.firstStart),
                     percent(run.lastEnd));
}

void addFamilies(const TaskProgram& program, const LayerCost& cost, const ScheduleChoice& schedule,
                 std::vector<Decision>& out) {
  for (size_t f = 0; f < program.families.size(); ++f) {
    const FamilyCost& family = cost.families[f];
    if (family.tasks <= 0) continue;
    out.push_back(
        {program.families[f].name,
         fmt::format("about {:.0f} tasks per step of at most {}", family.tasks, timeText(family.longest)),
         fmt::format("{} of all cores: {:.0f}% products, {:.0f}% memory{}", timeText(family.seconds),
                     100 * family.product / family.seconds, 100 * family.memory / family.seconds,
                     spanText(schedule, program.families[f], f)),
         program.at(program.families[f].entry).name});
  }
}

std::string coresText(const TaskProgram& program) {
  return program.cubeCores == 0
             ? fmt::format("{} cores", program.cores)
             : fmt::format("{} cube and {} vector cores", program.cubeCores, program.vectorCores);
}

}  // namespace

SizeChoice chooseSizes(CostProblem problem, const Rates& rates, const Expectation& expectation,
                       const CutSizes& start, const FixedSizes& fixed, const Windows& windows,
                       const CompleteProgram& complete) {
  Chooser chooser(std::move(problem), rates, expectation, start, fixed);
  chooser.run();
  const std::vector<CutSizes> candidates = chooser.candidates();
  ScheduleChoice schedule =
      chooseSchedule(chooser.problem(), rates, chooser.rows(), candidates, windows, complete);
  chooser.take(candidates[schedule.sizes]);
  const CostProblem& cut = chooser.problem();
  SizeChoice choice{chooser.sizes(), windows, std::move(schedule.laneRules), chooser.cost(), {}};
  choice.windows = chooseWindows(windows, cut, choice.cost);
  std::string entries;
  for (size_t e = 0; e < cut.program.entries.size(); ++e)
    entries += fmt::format("{}{} {}", e == 0 ? "" : ", ", cut.program.entries[e].name,
                           timeText(choice.cost.entries[e]));
  choice.decisions.push_back(
      {"", fmt::format("tuned for {} routing", expectation.name),
       fmt::format("{} tokens per rank, {:.0f} rows at the busiest; expected on {}: {}",
                   cut.program.maxTokens, chooser.rows().rows, coresText(cut.program), entries)});
  for (Decision& decision : chooser.decisions()) choice.decisions.push_back(std::move(decision));
  for (Decision& decision : schedule.decisions) choice.decisions.push_back(std::move(decision));
  choice.decisions.push_back(
      {"", windowText(choice.windows),
       "the deal continues across windows, so that their sizes do not change the order; "
       "at most the slots that are expected, and at least one task per core"});
  addFamilies(cut.program, choice.cost, schedule, choice.decisions);
  return choice;
}

}  // namespace sluice

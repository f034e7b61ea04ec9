// The links and places that `sluice explain` shows, against thresholds and the order of the executors.
#include "tools/explain/task_links.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/exec/lane_cursor.h"
#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/moe_program.h"
#include "tools/explain/explain_task.h"

namespace sluice::tools {
namespace {

using Catch::Matchers::Contains;

constexpr int kRanks = 2;

Plan layerPlan() {
  return planOf(buildMoeProgram({.ranks = kRanks, .experts = 4, .topK = 2, .maxTokens = 64}));
}

template <class Use>
void forTasks(const AllSteps& steps, const Use& use) {
  for (int rank = 0; rank < kRanks; ++rank)
    for (const FamilyId id : steps.plan.at(steps.entry).families)
      for (int64_t slot = 0;
           slot < liveSlots(steps.tables[static_cast<size_t>(rank)], steps.plan.at(id).space); ++slot)
        for (int32_t tile = 0; tile < steps.program().at(id).tiles; ++tile) use(rank, Task{id, slot, tile});
}

TEST_CASE("what is said to add to an event adds up to its threshold, and who waits for it names it") {
  const Plan plan = layerPlan();
  const Expected<BoundRouting> bound = bindIds(plan, raggedRouting(kRanks));
  REQUIRE(bound);
  int remote = 0;
  for (const EntryId entry : {EntryId{0}, EntryId{1}}) {
    const AllSteps steps{plan, entry, bound->of(plan, entry)};
    forTasks(steps, [&](int rank, const Task& task) {
      for (const EventAt& at : listWaits(steps, rank, task)) {
        int64_t sum = 0;
        for (const SlotTasks& each : listProducers(steps, at)) {
          sum += each.amount * plan.program().at(each.family).tiles;
          remote += each.rank != rank;
        }
        CHECK(sum == static_cast<int64_t>(findThreshold(steps, at)));
      }
      for (const EventAt& at : listSignals(steps, rank, task)) {
        const std::vector<SlotTasks> waiters = waitersFor(steps, at);
        for (const SlotTasks& each : waiters)
          CHECK(std::ranges::any_of(
              listWaits(steps, each.rank, {each.family, each.slot, 0}), [&](const EventAt& wait) {
                return wait.rank == at.rank && wait.event == at.event && wait.index == at.index;
              }));
        CHECK(std::ranges::any_of(listProducers(steps, at), [&](const SlotTasks& each) {
          return each.rank == rank && each.family == task.family && each.slot == task.slot;
        }));
      }
    });
  }
  CHECK(remote > 0);
}

TEST_CASE("a task is on the core, in the window and at the place where the executors find it") {
  const Plan plan = layerPlan();
  const Expected<BoundRouting> bound = bindIds(plan, raggedRouting(kRanks));
  REQUIRE(bound);
  const EntryId entry{1};
  const RoutingTables& tables = bound->of(plan, entry)[0];
  const size_t bytes = EventTable::bytesFor(plan, kRanks);
  std::vector<std::byte> words(bytes + kCacheLine);
  void* aligned = words.data();
  size_t room = words.size();
  std::align(kCacheLine, bytes, aligned, room);
  EventTable events(plan, kRanks, {{}, static_cast<std::byte*>(aligned), bytes});
  events.setThresholds(plan, entry, tables);
  Step step{&plan, 0, nullptr, &events, &tables, entry, {}, WorkKind::kAll};
  LaneProgress progress(plan.program());
  int tasks = 0;
  for (auto& lane : makeCursors(plan, entry, 0, 1, progress))
    for (LaneCursor& cursor : lane)
      for (cursor.start(step); !cursor.done(); cursor.next(step), ++tasks) {
        const LanePlace place = findPlace(plan, cursor.task());
        const Space& space = *plan.space(plan.at(cursor.task().family).space);
        CHECK(place.core == cursor.core());
        CHECK(place.window == cursor.task().slot / space.window);
      }
  CHECK(tasks > 50);
}

TEST_CASE("names of tasks are read as reports write them") {
  const Expected<TaskQuery> whole = parseTaskQuery("backward/up.proj[12,3]");
  REQUIRE(whole);
  CHECK(whole->entry == "backward");
  CHECK(whole->family == "up.proj");
  CHECK(whole->slot == 12);
  CHECK(whole->tile == 3);
  CHECK(parseTaskQuery("up")->slot == 0);
  CHECK(parseTaskQuery("up[4]")->slot == 4);
  for (const char* const wrong : {"", "up[", "up[]", "up[1", "up[1,]", "up[1,2", "up[-1]", "up[1,2]x",
                                  "[1,2]", "e/[1]", "up[99999999999999999999]", "up[1,99999999999]"})
    CHECK(!parseTaskQuery(wrong));
}

TEST_CASE("a task of a family, slot or tile that does not exist is an error that says what does") {
  const Plan plan = layerPlan();
  const Expected<BoundRouting> bound = bindIds(plan, raggedRouting(kRanks));
  REQUIRE(bound);
  const auto said = [&](const char* task) {
    const TaskQuery query = *parseTaskQuery(task);
    const Expected<FamilyId> family = findFamily(plan.program(), query);
    if (!family) return family.error().message;
    const EntryId entry = plan.program().at(*family).entry;
    const Expected<std::string> text =
        explainTask({plan, entry, bound->of(plan, entry)}, 1, *family, query, nullptr, "none");
    return text ? *text : text.error().message;
  };
  CHECK_THAT(said("dispatch"), Contains("several entries have a family 'dispatch'"));
  CHECK_THAT(said("forward/nothing"),
             Contains("no family 'forward/nothing', expected one of forward/dispatch, "));
  CHECK_THAT(said("swiglu[4000]"), Contains("slot 4000 of family 'swiglu', which has "));
  CHECK_THAT(said("swiglu[0,7]"), Contains("tile 7 of family 'swiglu', which has 1 tile"));
  CHECK_THAT(said("swiglu[0,0]"), Contains("forward/swiglu[0,0] of rank 1\n"));
  CHECK_THAT(said("swiglu[0,0]"), Contains("predicted  nothing: target 'none' has no rates"));
}

}  // namespace
}  // namespace sluice::tools

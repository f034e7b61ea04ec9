// Exhaustive checks of small programs: every routing, and every order in which tasks can run.
//
// With SLUICE_PROOF_ROUNDS from 2 on, every routing of the larger programs.
#include "tests/proof/small_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "runtime/program/verify.h"
#include "tests/proof/all_routings.h"
#include "tests/runtime/program/dense_program.h"
#include "tests/runtime/program/proof_rounds.h"
#include "tests/runtime/program/verify_mutations.h"
#include "tests/testing/exchange_program.h"
#include "tests/testing/linear_program.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/separate_cores.h"
#include "tests/testing/spare_places.h"

namespace sluice {
namespace {

// Two ranks, up to two experts and up to two tokens at each. Slots of rows are multiples of 16 in any
// valid program; the tables do not depend on it, so the model also cuts rows into slots of one.
struct Small {
  int experts, topK, tokens, cores, window, tileN, slotRows;
};

MoeShape shapeOf(const Small& small) {
  return {.ranks = 2,
          .experts = small.experts,
          .topK = small.topK,
          .hidden = 2,
          .intermediate = 1,
          .maxTokens = small.tokens,
          .cores = small.cores,
          .slotRows = 16,
          .tokenSlot = 1,
          .window = small.window,
          .tileN = small.tileN,
          .tileM = 2};
}

// The plain layer, dense families beside it, apart and fused, products on groups of two slots, which the
// model cuts to one row each, apart and fused, a sum that waits for a gradient of all experts, experts that
// two ranks share, which have tokens of their own or the same, column- and row-parallel linear layers, rows
// of float32 that only go there and back, and experts of which some are spare places.
constexpr int kKinds = 12, kSumLast = 5, kShared = 6, kSharedSame = 7, kColumn = 8, kExchange = 10,
              kSpare = 11;

TaskProgram programOfKind(int kind, const Small& small) {
  if (kind == kExchange)
    return buildExchangeProgram({.experts = small.experts,
                                 .topK = small.topK,
                                 .hidden = 2,
                                 .maxTokens = small.tokens,
                                 .cores = small.cores,
                                 .window = small.window,
                                 .tokenSlot = 1});
  if (kind == kSpare) return spareExperts(buildMoeProgram(shapeOf(small)), small.experts - small.topK);
  if (kind >= kColumn)
    return buildLinearProgram({.column = kind == kColumn,
                               .in = 2,
                               .out = 3,
                               .maxTokens = small.tokens,
                               .cores = small.cores,
                               .window = small.window,
                               .tokenSlot = 1,
                               .tileN = small.tileN,
                               .tileM = 2});
  MoeShape shape = shapeOf(small);
  if (kind == 1 || kind == 2) return buildDenseProgram(shape, kind == 2);
  if (kind == 3 || kind == 4) shape.groupSlots = 2;
  shape.fused = kind == 4;
  shape.sumLast = kind == kSumLast;
  if (kind >= kShared) shape.tp = 2;
  shape.sameTokens = kind == kSharedSame;
  return buildMoeProgram(shape);
}

TaskProgram verified(TaskProgram program) {
  const auto result = verify(program);
  REQUIRE((result.ok() ? "" : result.error().message) == "");
  return program;
}

struct Sum {
  int64_t routings = 0, states = 0;
  std::string error;
};

using Check = std::function<SmallModel::Verdict(const SmallModel&)>;

// All entries under all routings, up to the first error.
Sum checkAll(const TaskProgram& program, const Small& small, const Check& check,
             int64_t most = int64_t{1} << 40) {
  Sum sum;
  for (uint32_t entry = 0; entry < program.entries.size() && sum.error.empty(); ++entry) {
    int64_t count = 0;
    forEachRouting(program, small.tokens, small.slotRows, entry, [&](const std::vector<OracleRank>& routing) {
      const SmallModel::Verdict verdict = check(SmallModel(program, EntryId{entry}, routing));
      sum.states += verdict.states;
      if (!verdict.complete) sum.error = "too many states";
      if (!verdict.error.empty()) sum.error = program.entries[entry].name + ": " + verdict.error;
      return ++sum.routings, sum.error.empty() && ++count < most;
    });
  }
  return sum;
}

SmallModel::Verdict everyState(const SmallModel& model) { return model.explore(500000); }
SmallModel::Verdict largestStates(const SmallModel& model) { return model.reduced(); }

TEST_CASE("in every state that a small program can reach all is well, for every routing") {
  Sum all;
  const auto explore = [&](const TaskProgram& program, const Small& small) {
    const Sum sum = checkAll(program, small, everyState);
    REQUIRE(sum.error == "");
    all.routings += sum.routings;
    all.states += sum.states;
  };
  for (const int cores : {1, 2}) {
    for (const int slotRows : {16, 1}) {
      for (const Small& small :
           {Small{2, 1, 2, cores, 1, 2, slotRows}, Small{2, 2, 1, cores, 2, 1, slotRows}})
        explore(verified(buildMoeProgram(shapeOf(small))), small);
      const Small apart{2, 1, 2, 1, 1, 2, slotRows};  // as many cores of each kind, and one that only sends
      explore(verified(separateCores(buildMoeProgram(shapeOf(apart)), cores, cores + 1, cores - 1)), apart);
      const Small more{4, 2, 1, cores, 1, 2, slotRows};  // two experts at a rank: millions of states
      if (proofRounds() > 1) explore(verified(buildMoeProgram(shapeOf(more))), more);
      const Small tiny{2, 1, 1, cores, 1, 2, slotRows};
      if (!kSanitized) explore(verified(buildDenseProgram(shapeOf(tiny), true)), tiny);
      const Small grouped{2, 1, 2, cores, 1, 2, slotRows};
      if (!kSanitized) explore(verified(programOfKind(3, grouped)), grouped);
      const Small atOneRank{1, 1, 2, cores, 1, 2, slotRows};  // the other rank owns no expert
      explore(verified(programOfKind(kSumLast, atOneRank)), atOneRank);
      const Small shared{1, 1, 1, cores, 1, 2, slotRows};
      for (int kind = kShared; kind < kKinds; ++kind) explore(verified(programOfKind(kind, shared)), shared);
    }
  }
  const Small twice{2, 2, 2, 1, 2, 2, 16};
  if (!kSanitized) explore(verified(buildMoeProgram(shapeOf(twice))), twice);
  std::printf("every state: %lld routings, %lld states\n", static_cast<long long>(all.routings),
              static_cast<long long>(all.states));
}

TEST_CASE("the largest states of larger programs keep the promise") {
  const int64_t most = proofRounds() > 1 ? int64_t{1} << 40 : proofShare(150);
  Sum all;
  for (const int cores : {1, 2})
    for (const int slotRows : {16, 1})
      for (const Small& small : {Small{2, 2, 2, cores, 1, 1, slotRows}, Small{4, 2, 2, cores, 2, 2, slotRows},
                                 Small{4, 1, 2, cores, 1, 1, slotRows}, Small{3, 2, 2, cores, 2, 1, slotRows},
                                 Small{1, 1, 2, cores, 1, 2, slotRows}})
        for (int kind = 0; kind < kKinds; ++kind) {
          const TaskProgram program = programOfKind(kind, small);
          const Sum sum = checkAll(verified(program), small, largestStates, most);
          REQUIRE(sum.error == "");
          all.routings += sum.routings;
          all.states += sum.states;
        }
  for (const bool same : {false, true}) {  // two groups of two
    const Small small{2, 1, 1, 1, 1, 2, 16};
    MoeShape shape = shapeOf(small);
    shape.ranks = 4;
    shape.tp = 2;
    shape.sameTokens = same;
    const Sum sum = checkAll(verified(buildMoeProgram(shape)), small, largestStates, most);
    REQUIRE(sum.error == "");
    all.routings += sum.routings;
    all.states += sum.states;
  }
  std::printf("largest states: %lld routings, %lld states\n", static_cast<long long>(all.routings),
              static_cast<long long>(all.states));
}

// --- that the check has teeth ------------------------------------------------------------------------------

constexpr Small kTeeth{2, 2, 1, 2, 1, 1, 1};
constexpr Small kUnevenTeeth{3, 2, 1, 2, 1, 1, 1};

// Refused by verify(), and found by the model under some routing.
void checkFound(const TaskProgram& program, const Small& small = kTeeth) {
  CHECK_FALSE(verify(program).ok());
  CHECK(checkAll(program, small, largestStates).error != "");
}

TEST_CASE("a wait that is dropped is found, whichever it is") {
  int dropped = 0;
  for (int kind :
       {0, 1, 2, 3, 4, kExchange}) {  // not kSumLast, whose wait carries no data: without it all is well
    const TaskProgram whole = programOfKind(kind, kTeeth);
    for (uint32_t family = 0; family < whole.families.size(); ++family) {
      for (size_t wait = 0; wait < whole.families[family].waits.size(); ++wait) {
        TaskProgram program = whole;
        std::vector<EventId>& waits = program.families[family].waits;
        waits.erase(waits.begin() + static_cast<ptrdiff_t>(wait));
        INFO(program.name << ", wait " << wait << " of " << program.families[family].name);
        checkFound(program);
        ++dropped;
      }
    }
  }
  CHECK(dropped > 35);
}

TEST_CASE("a threshold of one more or one less is found, whichever it is") {
  const auto checkThresholds = [](int kind, const Small& small) {
    const TaskProgram whole = programOfKind(kind, small);
    for (size_t event = 0; event < whole.events.size(); ++event) {
      for (const int change : {-1, 1}) {
        if (whole.events[event].factor == 0) continue;
        TaskProgram program = whole;
        program.events[event].factor += change;
        INFO(program.name << ", threshold of " << program.events[event].name << " by " << change);
        checkFound(program, small);
      }
    }
  };
  for (int kind = 0; kind < kKinds; ++kind) checkThresholds(kind, kTeeth);
  checkThresholds(kSumLast, kUnevenTeeth);
}

TEST_CASE("a threshold of all experts that is right for one rank only is found") {
  const TaskProgram whole = programOfKind(kSumLast, kUnevenTeeth);
  const auto allGrads = std::find_if(whole.events.begin(), whole.events.end(), [](const EventArray& event) {
    return event.rule == ThresholdRule::kExpertsOfRank;
  });
  REQUIRE(allGrads != whole.events.end());
  for (const int experts : {1, 2}) {
    TaskProgram program = whole;
    EventArray& event = program.events[allGrads - whole.events.begin()];
    event.rule = ThresholdRule::kConstant;
    event.factor *= experts;
    INFO(experts << " experts counted at ranks that own 2 and 1");
    checkFound(program, kUnevenTeeth);
  }
}

TEST_CASE("lanes in the wrong order and memory that is shared too early are found") {
  const auto change = [](const std::function<void(TaskProgram&)>& damage) {
    TaskProgram program = buildMoeProgram(shapeOf(kTeeth));
    damage(program);
    checkFound(program);
  };
  const auto named = [](auto& table, const char* name) {
    return std::find_if(table.begin(), table.end(), [&](const auto& one) { return one.name == name; });
  };
  change([&](TaskProgram& p) {  // swiglu before up_proj in one lane
    Lane& first = *named(p.lanes, "swiglu");
    const Lane& second = *named(p.lanes, "up_proj");
    for (size_t core = 0; core < first.seats.size(); ++core)
      first.seats[core].insert(first.seats[core].end(), second.seats[core].begin(), second.seats[core].end());
    p.lanes.erase(named(p.lanes, "up_proj"));
  });
  change([&](TaskProgram& p) {  // the weight gradient still reads rows_dy
    p.buffers[named(p.buffers, "rows_dx") - p.buffers.begin()].region = named(p.buffers, "rows_dy")->region;
  });
  change([&](TaskProgram& p) {  // down_proj overwrites what it reads
    named(p.buffers, "down_out")->region = named(p.buffers, "gate_up_grad")->region;
    named(p.buffers, "act")->region = named(p.buffers, "down_out")->region;
  });
}

// --- that the reduction decides as all states do, and that verify() does not let anything through
// -----------

// A mutant that the model can hold: small limits, ids in range.
bool isSmall(const TaskProgram& p) {
  const auto longest = [&] {
    size_t most = 0;
    for (const Lane& lane : p.lanes)
      for (const auto& seat : lane.seats) most = std::max(most, seat.size());
    return most;
  };
  return p.mesh.peers() == 2 && p.experts <= 4 && p.topK <= 2 && p.cores <= 4 && longest() < 64;
}

// Ids that are out of range: the model takes none.
bool hasStrayIds(TaskProgram& p) {
  bool stray = false;
  const auto look = [&](auto id, const auto& table) { stray = stray || (id && id.value >= table.size()); };
  for (const Family& family : p.families) {
    for (BufferId id : family.reads) look(id, p.buffers);
    for (BufferId id : family.writes) look(id, p.buffers);
    stray = stray || !family.space || !family.reads.front() || !family.writes.front();
  }
  for (const Buffer& buffer : p.buffers) look(buffer.region, p.regions);
  return stray;
}

TEST_CASE("largest states decide as every state does") {
  Random random(11);
  const Small small{2, 1, 1, 1, 1, 2, 1};
  const TaskProgram bases[] = {programOfKind(0, small), programOfKind(2, small), programOfKind(3, small)};
  int good = 0, bad = 0;
  for (const Mutation& mutation : subtleMutations()) {
    for (int i = 0; i < proofShare(9); ++i) {
      TaskProgram mutant = bases[i % 3];
      mutation.apply(mutant, random);
      if (mutant == bases[i % 3] || !isSmall(mutant) || hasStrayIds(mutant)) continue;
      forEachRouting(mutant, 1, 1, 0, [&](const std::vector<OracleRank>& routing) {
        const SmallModel model(mutant, EntryId{1}, routing);
        const SmallModel::Verdict all = model.explore(20000), reduced = model.reduced();
        INFO(mutation.name << ": '" << all.error << "' and '" << reduced.error << "'");
        if (!all.complete) return true;
        REQUIRE(all.error.empty() == reduced.error.empty());
        ++(all.error.empty() ? good : bad);
        return true;
      });
    }
  }
  CHECK(good > proofShare(100));
  CHECK(bad > proofShare(100));
}

TEST_CASE("what verify() accepts keeps the promise for every routing") {
  Random random(12);
  std::vector<Mutation> list = subtleMutations();
  for (const Mutation& mutation : tableMutations()) list.push_back(mutation);
  for (const Mutation& mutation : recordMutations()) list.push_back(mutation);
  const Small small{2, 2, 1, 2, 1, 1, 1};
  std::vector<TaskProgram> bases;
  for (int kind = 0; kind < kKinds; ++kind) bases.push_back(programOfKind(kind, small));
  bases.push_back(programOfKind(kSumLast, kUnevenTeeth));
  bases.push_back(programOfKind(kSumLast, {1, 1, 1, 2, 1, 1, 1}));
  int refused = 0, harmless = 0;
  for (int i = 0; i < proofShare(3000); ++i) {
    const TaskProgram& base = bases[static_cast<size_t>(i) % bases.size()];
    TaskProgram mutant = base;
    // Subtle changes stand first in the list and go first: they take a program whose ids are in range.
    std::vector<size_t> chosen = {random() % list.size()};
    if (i % 2 == 0) chosen.push_back(random() % list.size());
    std::sort(chosen.begin(), chosen.end());
    for (size_t mutation : chosen) list[mutation].apply(mutant, random);
    if (mutant == base) continue;
    if (!verify(mutant)) {
      ++refused;
      continue;
    }
    if (!isSmall(mutant)) continue;
    INFO("mutant " << i << ", '" << list[chosen.back()].name << "'");
    REQUIRE(checkAll(mutant, small, largestStates).error == "");
    ++harmless;
  }
  std::printf("mutants: %d refused, %d harmless for every routing, 0 escaped\n", refused, harmless);
  CHECK(refused > proofShare(1000));
  CHECK(harmless > proofShare(100));
}

}  // namespace
}  // namespace sluice

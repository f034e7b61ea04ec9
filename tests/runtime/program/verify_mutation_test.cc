// Mutation test of verify(): damaged programs are refused with a message that says where, or are harmless
// by an oracle that runs them (verify_oracle.h).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "runtime/program/op_table.h"
#include "runtime/program/verify.h"
#include "tests/runtime/program/dense_program.h"
#include "tests/runtime/program/mutation_shapes.h"
#include "tests/runtime/program/proof_rounds.h"
#include "tests/runtime/program/verify_mutations.h"
#include "tests/runtime/program/verify_oracle.h"
#include "tests/testing/exchange_program.h"
#include "tests/testing/linear_program.h"
#include "tests/testing/packed_regions.h"
#include "tests/testing/separate_cores.h"
#include "tests/testing/spare_places.h"

namespace sluice {
namespace {

std::vector<TaskProgram> bases() {
  const auto [two, three, grouped, uneven, few, shared, alone, aloneGrouped, mesh] = mutationShapes();
  MoeShape one = two, fused = three;
  one.ranks = 1;
  one.topK = 1;
  one.experts = 2;
  one.cores = 2;
  one.window = 1;
  one.hidden = 9;
  fused.groupSlots = 3;
  fused.fused = true;
  return {buildMoeProgram(two),
          buildMoeProgram(shared),
          buildMoeProgram(alone),
          buildMoeProgram(aloneGrouped),
          buildMoeProgram(mesh),
          buildMoeProgram(one),
          buildMoeProgram(three),
          buildDenseProgram(two, false),
          buildDenseProgram(two, true),
          packRegions(buildMoeProgram(three)),
          packRegions(buildDenseProgram(two, false)),
          buildMoeProgram(grouped),
          packRegions(buildMoeProgram(fused)),
          separateCores(buildMoeProgram(two), 2, 3, 1),
          buildMoeProgram(uneven),
          buildDenseProgram(few, false),
          packRegions(buildLinearProgram({.ranks = 3, .in = 9, .out = 20, .cores = 1})),
          packRegions(buildLinearProgram({.column = false, .sameTokens = true, .in = 9, .out = 20})),
          buildExchangeProgram({}),
          spareExperts(packRegions(buildExchangeProgram({.isFloat = false, .ranks = 3, .experts = 5})), 1),
          spareExperts(buildMoeProgram(two), 2)};
}

// The first misbehaviour found in `runs` runs of the program, or "". Families are held back in turn, from one
// on that the seed chooses.
std::string misbehaviour(const TaskProgram& program, uint64_t seed, int runs) {
  for (int run = 0; run < runs; ++run)
    if (std::string found = runOracle(program, seed * 1000 + run, static_cast<uint32_t>(seed + run));
        !found.empty())
      return found;
  return "";
}

constexpr int kRuns = 4;  // of each of many mutants

// Whether a message says where: every one names what it is about in quotes, or the limit.
bool namesPlace(const std::string& message) {
  for (const char* place : {"task ",           "lane '",     "family '",  "families of entry '",
                            "event '",         "buffer '",   "buffers '", "region '",
                            "space '",         "spaces '",   "entry '",   "output '",
                            "have the name '", "ranks",      "experts",   "spare",
                            "top_k",           "max_tokens", "cores",     "a rank may receive"})
    if (message.find(place) != std::string::npos) return true;
  return false;
}

struct Tally {
  int refused = 0, harmless = 0;
};

// `depth` mutations of the list one after the other, `count` times for each class and base.
Tally mutate(const std::vector<Mutation>& list, int count, int depth, uint64_t seed) {
  Random random(seed);
  Tally tally;
  const std::vector<TaskProgram> programs = bases();
  for (const Mutation& mutation : list)
    for (const TaskProgram& base : programs)
      for (int i = 0; i < proofShare(count); ++i) {
        TaskProgram mutant = base;
        mutation.apply(mutant, random);
        for (int more = 1; more < depth; ++more) list[random() % list.size()].apply(mutant, random);
        if (mutant == base) continue;
        const auto verified = verify(mutant);
        INFO("class '" << mutation.name << "', number " << i);
        if (!verified) {
          REQUIRE_FALSE(verified.error().message.empty());
          REQUIRE(verified.error().message.size() < 1000);
          CHECK(namesPlace(verified.error().message));
          ++tally.refused;
          continue;
        }
        const std::string found = misbehaviour(mutant, random() % 100000, kRuns);
        REQUIRE(found == "");
        ++tally.harmless;
      }
  return tally;
}

TEST_CASE("valid programs behave under the oracle") {
  for (const TaskProgram& base : bases()) {
    REQUIRE(verify(base).ok());
    CHECK(misbehaviour(base, 1, 200) == "");
  }
}

// A mutant of the two-rank base that is refused and whose misbehaviour the oracle finds: the message of
// each must contain the given text.
void checkBad(const std::function<void(TaskProgram&)>& change, const char* refused, const char* found) {
  TaskProgram mutant = bases()[0];
  change(mutant);
  const auto verified = verify(mutant);
  REQUIRE_FALSE(verified.ok());
  CHECK_THAT(verified.error().message, Catch::Contains(refused));
  CHECK_THAT(misbehaviour(mutant, 5, 200), Catch::Contains(found));
}

FamilyId familyOf(const TaskProgram& p, EntryId entry, OpKind op) {
  const auto is = [&](const Family& f) { return f.entry == entry && f.op == op; };
  return {static_cast<uint32_t>(std::find_if(p.families.begin(), p.families.end(), is) - p.families.begin())};
}

TEST_CASE("the oracle sees what the verifier refuses") {
  const auto nameLane = [](TaskProgram& p, const char* lane) {
    return std::find_if(p.lanes.begin(), p.lanes.end(), [&](const Lane& l) { return l.name == lane; });
  };
  checkBad([](TaskProgram& p) { p.events[1].factor -= 1; }, "threshold", "not written");
  checkBad([](TaskProgram& p) { p.events[1].factor += 1; }, "threshold", "can run");
  checkBad([](TaskProgram& p) { p.families[2].waits = {}; }, "'gate_up'", "not written");
  checkBad([](TaskProgram& p) { p.families[2].signals = {}; }, "swiglu_done", "can run");
  checkBad([&](TaskProgram& p) { nameLane(p, "up_proj")->seats[0].pop_back(); }, "'up_proj'", "can run");
  checkBad(
      [&](TaskProgram& p) {
        Lane& sends = *nameLane(p, "dispatch");
        const Lane& returns = *nameLane(p, "combine.return");
        for (size_t c = 0; c < sends.seats.size(); ++c)
          sends.seats[c].insert(sends.seats[c].begin(), returns.seats[c].begin(), returns.seats[c].end());
        p.lanes.erase(nameLane(p, "combine.return"));
      },
      "task 0 of core 0 in lane 'dispatch'", "no such slot");
  checkBad(
      [](TaskProgram& p) {
        Lane& rows = p.lanes[1];  // up_proj after swiglu, which waits for it
        for (size_t c = 0; c < rows.seats.size(); ++c)
          rows.seats[c].insert(rows.seats[c].begin(), p.lanes[2].seats[c].begin(), p.lanes[2].seats[c].end());
        p.lanes.erase(p.lanes.begin() + 2);
      },
      "must stand before", "can run");
  checkBad(
      [](TaskProgram& p) {
        const auto buffer = [&](const char* name) {
          return std::find_if(p.buffers.begin(), p.buffers.end(), [&](auto& b) { return b.name == name; });
        };
        p.regions[buffer("rows_dy")->region.value].stride = 64;
        buffer("rows_dx")->region = buffer("rows_dy")->region;  // the weight gradient still reads rows_dy
      },
      "may not be done", "not written");
}

TEST_CASE("the oracle sees buffers that meet in a part of their bytes") {
  const auto named = [](auto& table, const char* name) {
    return std::find_if(table.begin(), table.end(), [&](auto& b) { return b.name == name; });
  };
  // the weight gradient still reads rows_dy, 40 bytes, when rows_dx is written
  const auto join = [&](TaskProgram& p, int64_t offset) {
    Buffer& rowsDx = *named(p.buffers, "rows_dx");
    rowsDx.region = named(p.buffers, "rows_dy")->region;
    rowsDx.offset = offset;
    p.regions[rowsDx.region.value].stride = 128;
  };
  checkBad([&](TaskProgram& p) { join(p, 38); }, "may not be done", "not written");
  TaskProgram disjoint = bases()[0];
  join(disjoint, 40);
  CHECK(verify(disjoint).ok());
  CHECK(misbehaviour(disjoint, 5, 200) == "");
}

// Rows arrive also at a rank without tokens. There a wait for all slots of tokens is no wait, and covers
// nothing that families in tokens have waited for.
TEST_CASE("a wait for all tokens does not cover the rows that arrive") {
  TaskProgram p = buildDenseProgram(mutationShapes().two, false);
  const EntryId backward{1};
  const auto familyOf = [&](const char* name) {
    const auto is = [&](const Family& f) { return f.entry == backward && f.name == name; };
    return static_cast<uint32_t>(std::find_if(p.families.begin(), p.families.end(), is) - p.families.begin());
  };
  const auto event = [&](const char* name, ThresholdRule rule, int64_t factor) {
    p.events.push_back({name, backward, EventSpace::kOne, EventUnit::kTasks, rule, factor, false});
    return EventId{static_cast<uint32_t>(p.events.size() - 1)};
  };
  const uint32_t grad = familyOf("down_weight_grad"), dx = familyOf("dense_dx");
  const EventId gradDone =
      event("grad_done", ThresholdRule::kConstant, int64_t{p.families[grad].tiles} * p.maxExperts());
  const EventId dxDone = event("dx_all", ThresholdRule::kSlotsOfTokens, p.families[dx].tiles);
  p.families[grad].signals = {gradDone};
  p.families[dx].waits.push_back(gradDone);
  p.families[dx].signals.push_back(dxDone);
  REQUIRE(verify(p).ok());

  // The gradient once more, after dense_dx, which comes after the gradient, which comes after the rows.
  Family late = p.families[grad];
  late.name = "late";
  late.waits = {dxDone};
  late.signals = {};
  p.buffers.push_back(p.at(findBuffer(late, &Operands::c)));
  p.buffers.back().name = "late";
  operandBuffer(late, &Operands::c) = BufferId{static_cast<uint32_t>(p.buffers.size() - 1)};
  Lane lane = *std::find_if(p.lanes.begin(), p.lanes.end(),
                            [&](const Lane& l) { return l.name == "down_weight_grad"; });
  for (auto& seat : lane.seats)
    for (TaskRecord& record : seat) record.family = FamilyId{static_cast<uint32_t>(p.families.size())};
  p.families.push_back(late);
  p.lanes.push_back(lane);
  const auto verified = verify(p);
  REQUIRE_FALSE(verified.ok());
  CHECK_THAT(
      verified.error().message,
      Catch::Contains("'late'") && Catch::Contains("until family 'dispatch' has written it for its expert"));
  CHECK_THAT(misbehaviour(p, 5, 200), Catch::Contains("where it is not written"));
}

// A rank that owns no expert has no task of a weight gradient. There a wait for all of them is no wait, and
// covers nothing that the gradients have waited for.
TEST_CASE("a wait for all experts does not cover the pairs that come back") {
  const auto withLateSum = [](int experts) {
    MoeShape shape = mutationShapes().two;
    shape.ranks = 3;
    shape.experts = experts;
    shape.sumLast = true;
    TaskProgram p = buildMoeProgram(shape);
    const auto isGrad = [](const Family& f) { return f.name == "down_weight_grad"; };
    const auto grad = static_cast<uint32_t>(std::find_if(p.families.begin(), p.families.end(), isGrad) -
                                            p.families.begin());
    const FamilyId sum = familyOf(p, EntryId{1}, OpKind::kCombineSum);
    const std::vector<EventId> waits = p.at(sum).waits;
    p.families[grad].waits.push_back(waits.at(0));  // all that is returned
    // the sum waits for that alone, and a second one, which makes the same, for the gradients alone
    p.families[sum.value].waits = {waits.at(0)};
    Family late = p.at(sum);
    late.name = "late";
    late.waits = {waits.at(1)};
    for (BufferId& written : late.writes) {
      p.buffers.push_back(p.at(written));
      p.buffers.back().name = "late_" + p.buffers.back().name;
      written = BufferId{static_cast<uint32_t>(p.buffers.size() - 1)};
    }
    Lane lane = *std::find_if(p.lanes.begin(), p.lanes.end(), [&](const Lane& l) {
      return l.entry == EntryId{1} && l.name == "combine.sum";
    });
    for (auto& seat : lane.seats)
      for (TaskRecord& record : seat) record.family = FamilyId{static_cast<uint32_t>(p.families.size())};
    p.families.push_back(late);
    p.lanes.push_back(lane);
    return p;
  };
  for (const int experts : {3, 4}) {
    CHECK(verify(withLateSum(experts)).ok());
    CHECK(misbehaviour(withLateSum(experts), 5, 100) == "");
  }
  const auto verified = verify(withLateSum(2));
  REQUIRE_FALSE(verified.ok());
  CHECK_THAT(verified.error().message,
             Catch::Contains("'late'") && Catch::Contains("until family 'combine.return' has written it"));
  CHECK_THAT(misbehaviour(withLateSum(2), 5, 200), Catch::Contains("where it is not written"));
}

TEST_CASE("damaged records and lanes are refused or harmless") {
  const Tally tally = mutate(recordMutations(), 60, 1, 1);
  CHECK(tally.refused > proofShare(1000));
  CHECK(tally.harmless > proofShare(100));  // seats may be swapped, priorities changed, ...
}

TEST_CASE("damaged tables are refused or harmless") {
  const Tally tally = mutate(tableMutations(), 60, 1, 2);
  CHECK(tally.refused > proofShare(2000));
  CHECK(tally.harmless > proofShare(50));
}

TEST_CASE("programs damaged beyond recognition are refused without a crash") {
  Random random(6);
  std::vector<Mutation> list = recordMutations();
  for (const Mutation& mutation : tableMutations()) list.push_back(mutation);
  const std::vector<TaskProgram> programs = bases();
  for (int i = 0; i < proofShare(4000); ++i) {
    TaskProgram mutant = programs[random() % programs.size()];
    for (uint64_t changes = 2 + random() % 12; changes > 0; --changes)
      list[random() % list.size()].apply(mutant, random);
    if (const auto verified = verify(mutant)) CHECK(misbehaviour(mutant, random() % 100000, kRuns) == "");
  }
}

TEST_CASE("programs that are consistent around their damage are refused or harmless") {
  const Tally tally = mutate(subtleMutations(), 150, 1, 3);
  CHECK(tally.refused > proofShare(1000));
  CHECK(tally.harmless > proofShare(300));
}

TEST_CASE("several consistent changes together are refused or harmless") {
  const Tally two = mutate(subtleMutations(), 100, 2, 4), three = mutate(subtleMutations(), 60, 3, 5);
  CHECK(two.refused + three.refused > proofShare(1500));
  CHECK(two.harmless + three.harmless > proofShare(100));
}

}  // namespace
}  // namespace sluice

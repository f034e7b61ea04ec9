// The op table: the arithmetic of tiles, and that what the table says of an op fits together.
#include "runtime/program/op_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "runtime/program/space_table.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

TEST_CASE("an equal tile covers the length in the fewest tiles and is a multiple of the unit") {
  for (int32_t length : {1, 15, 16, 17, 100, 768, 1536, 2048, 7168})
    for (int32_t largest : {1, 16, 100, 256, 512})
      for (int32_t unit : {1, 16, 32}) {
        const int32_t tile = equalTile(length, largest, unit);
        const int32_t bound = std::max(unit, largest / unit * unit);
        INFO(length << " by " << largest << " unit " << unit);
        CHECK(tile % unit == 0);
        CHECK(tile <= bound);
        CHECK(tileCount(length, tile) == tileCount(length, bound));
      }
  CHECK(equalTile(768, 512, 16) == 384);
  CHECK(equalTile(0, 512, 16) == 16);
  CHECK(equalTile(std::numeric_limits<int32_t>::max(), 1024, 16) == 1024);
}

TEST_CASE("the column tiles of a product lie side by side and end with the columns") {
  for (OpKind op : {OpKind::kGmm, OpKind::kGmmActivation, OpKind::kGmmActivationGrad}) {
    const Tiling tiling = {.n = 100, .k = 8, .tileN = 48, .flags = findInfo(op).transposed};
    CHECK(isTransposed(op, tiling));
    CHECK(!isTransposed(op, {}));
    REQUIRE(countTiles(op, tiling) == 3);
    CHECK(findTile(op, tiling, 0).n == TileRange{0, 48});
    CHECK(findTile(op, tiling, 2).n == TileRange{96, 100});
    CHECK(countTiles(op, {.n = 100}) == 0);
  }
}

TEST_CASE("a product before an activation multiplies by a range of columns for each of its inputs") {
  for (const auto& [kind, inputs] :
       {std::pair(ActivationKind::kSwiglu, 2), {ActivationKind::kSilu, 1}, {ActivationKind::kRelu2, 1}}) {
    const Tiling tiling{.n = 100, .k = 8, .tileN = 48, .activation = kind};
    CHECK(findInfo(kind).inputs == inputs);
    CHECK(weightParts(OpKind::kGmmActivation, tiling) == inputs);
    CHECK(productFlops(OpKind::kGmmActivation, tiling) == inputs * 2 * 100 * 8);
    CHECK(weightParts(OpKind::kGmmActivationGrad, tiling) == 1);
    CHECK(weightParts(OpKind::kGmm, {.n = 100, .k = 8}) == 1);
    CHECK(weightParts(OpKind::kActivation, tiling) == 0);
  }
}

TEST_CASE("an alpha of 0 is none: the factor is 1") {
  CHECK(effectiveAlpha(Tiling{}) == 1);
  CHECK(effectiveAlpha(Tiling{.alpha = -0.5f}) == -0.5f);
}

TEST_CASE("the tiles of a weight gradient run along n first") {
  const Tiling tiling = {.m = 70, .n = 100, .tileM = 32, .tileN = 48};
  const auto tile = [&](int32_t index) { return findTile(OpKind::kGmmWeightGrad, tiling, index); };
  REQUIRE(countTiles(OpKind::kGmmWeightGrad, tiling) == 9);
  CHECK(tile(1).m == TileRange{0, 32});
  CHECK(tile(1).n == TileRange{48, 96});
  CHECK(tile(8).m == TileRange{64, 70});
  CHECK(tile(8).n == TileRange{96, 100});
  CHECK(countTiles(OpKind::kGmmWeightGrad, {.m = 5, .n = 100, .tileN = 5}) == 0);
}

TEST_CASE("the words of values are those of the format") {
  CHECK(text::listWords(OpKind{}) == text::Words{"dispatch", "gmm", "gmm_weight_grad", "activation",
                                                 "activation_grad", "combine_return", "combine_sum", "add",
                                                 "scale", "gmm_activation", "gmm_activation_grad",
                                                 "column_sum", "row_dot", "quantize", "amax", "encode"});
  CHECK(text::listWords(Extent{}) == text::Words{"fixed", "T", "R", "P", "E"});
  CHECK(text::listWords(DType{}) ==
        text::Words{"F32", "BF16", "F16", "I32", "I64", "I8", "U8", "F8_E4M3", "F8_E8M0"});
  CHECK(text::listWords(SpaceKind{}) ==
        text::Words{"tokens", "rows", "sends", "returns", "experts", "once", "groups"});
  CHECK(text::word(ThresholdRule::kSlotsOfExpert) == "slots_of_expert");
  CHECK(text::word(static_cast<CoreKind>(9)) == "?9");
  CHECK(text::wordList<ActivationKind>() ==
        "swiglu, swiglu_clamp, geglu, reglu, squared_reglu, swiglu_oai, silu, relu2");
  CHECK(text::fromWord<ActivationKind>("geglu") == ActivationKind::kGeglu);
  CHECK(text::fromWord<ActivationKind>("selu") == std::nullopt);
}

TEST_CASE("cube cores multiply, vector cores do all else, and no core of either kind does both") {
  for (int value = 0; value <= static_cast<int>(OpKind::MAX); ++value) {
    const OpInfo& op = findInfo(static_cast<OpKind>(value));
    INFO(text::word(static_cast<OpKind>(value)));
    const bool multiplies = op.multiplies() || op.isSum(), other = op.vector != VectorWork::kNone;
    CHECK(op.core == (!multiplies ? CoreKind::kVector : other ? CoreKind::kUnified : CoreKind::kCube));
    CHECK((op.multiplies()) == std::any_of(op.reads.begin(), op.reads.end(),
                                           [](const OperandInfo& operand) { return operand.isWeight; }));
    CHECK((op.transposed != 0) == (op.multiplies()));
  }
}

TEST_CASE("each operand of an op has a name of its own, and names operands of the op") {
  for (int value = 0; value <= static_cast<int>(OpKind::MAX); ++value) {
    const OpInfo& op = findInfo(static_cast<OpKind>(value));
    INFO(text::word(static_cast<OpKind>(value)));
    Family family{.op = static_cast<OpKind>(value)};
    uint32_t next = 0;
    for (const std::span<const OperandInfo> operands : {op.reads, op.writes})
      for (const OperandInfo& operand : operands) {
        INFO(operand.name);
        REQUIRE(operand.id != nullptr);
        CHECK(op.find(operand.id) == &operand);  // the first of that name is this one
        operandBuffer(family, operand.id) = {next++};
        for (const OperandName other : {operand.with, operand.scales, operand.findAmax})
          if (other != nullptr) CHECK(op.find(other) != nullptr);
        if (operand.with != nullptr) CHECK(op.find(operand.with)->optional);
      }
    CHECK(family.reads.size() == op.reads.size());
    CHECK(family.writes.size() == op.writes.size());
    const Operands ids = findOperands(family);
    next = 0;
    for (const std::span<const OperandInfo> operands : {op.reads, op.writes})
      for (const OperandInfo& operand : operands) {
        CHECK(ids.*operand.id == BufferId{next});
        CHECK(findBuffer(family, operand.id) == BufferId{next++});
      }
  }
}

// As docs/PROGRAM.md has it: which spaces have an index for which events.
TEST_CASE("the finest event between two spaces is that of the slots, group or expert they share") {
  const auto finest = [](SpaceKind from, SpaceKind to) { return finestEvent(from, to); };
  CHECK(finest(SpaceKind::kRows, SpaceKind::kRows) == EventSpace::kRows);
  CHECK(finest(SpaceKind::kSends, SpaceKind::kGroups) == EventSpace::kGroups);
  CHECK(finest(SpaceKind::kGroups, SpaceKind::kReturns) == EventSpace::kGroups);
  CHECK(finest(SpaceKind::kRows, SpaceKind::kExperts) == EventSpace::kExperts);
  CHECK(finest(SpaceKind::kTokens, SpaceKind::kTokens) == EventSpace::kTokens);
  CHECK(finest(SpaceKind::kTokens, SpaceKind::kOnce) == EventSpace::kOne);
  CHECK(finest(SpaceKind::kReturns, SpaceKind::kTokens) == EventSpace::kOne);
  CHECK(finest(SpaceKind::kRows, SpaceKind::kTokens) == EventSpace::kOne);
  CHECK(finest(SpaceKind::kSends, SpaceKind::kTokens) == std::nullopt);
  CHECK(isSlotLocal(SpaceKind::kRows, SpaceKind::kRows, EventSpace::kRows));
  CHECK_FALSE(isSlotLocal(SpaceKind::kRows, SpaceKind::kReturns, EventSpace::kRows));
  CHECK_FALSE(isSlotLocal(SpaceKind::kOnce, SpaceKind::kOnce, EventSpace::kOne));
}

TEST_CASE("an entry that returns rows, but gets none, takes its own rows last") {
  TaskProgram program;
  const auto add = [&](SpaceKind kind) {
    Family family;
    family.entry = EntryId{0};
    family.space = SpaceId{static_cast<uint32_t>(program.spaces.size())};
    program.spaces.push_back({"", kind, 1, 1});
    program.families.push_back(family);
  };
  const auto isOwnLast = [&](uint32_t entry) { return takesOwnLast(program, EntryId{entry}); };
  add(SpaceKind::kRows);
  CHECK_FALSE(isOwnLast(0));
  add(SpaceKind::kReturns);
  CHECK(isOwnLast(0));
  CHECK_FALSE(isOwnLast(1));
  add(SpaceKind::kSends);
  CHECK_FALSE(isOwnLast(0));
}

}  // namespace
}  // namespace sluice

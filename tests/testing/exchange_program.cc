#include "tests/testing/exchange_program.h"

#include <utility>

#include "runtime/program/op_table.h"
#include "tests/testing/program_builder.h"

namespace sluice {
namespace {

class Builder : private ProgramBuilder {
 public:
  explicit Builder(const ExchangeShape& shape) : s_(shape) {}

  TaskProgram build() {
    header();
    const BufferId probs = buffer("probs", DType::kF32, {kDimT, fixedDim(s_.topK)}, Role::kInput), none;
    const BufferId x = rows("x", kDimT, Role::kInput);
    beginEntry("dispatch", expertIds_, {});
    dispatch(x, probs, "rows_arrived", "rows");
    beginEntry("combine", {}, EntryId{0});
    combine("out_rows", none, "returned_rows", "y");
    beginEntry("combine_backward", {}, EntryId{0});
    dispatch(rows("dy", kDimT, Role::kInput), none, "d_out_rows_arrived", "d_out_rows");
    beginEntry("dispatch_backward", {}, EntryId{0});
    combine("d_rows", buffer("d_row_probs", DType::kF32, {kDimR}, Role::kInput), "returned_d_rows", "dx");
    for (Family& family : program.families) trimOperands(family);
    return std::move(program);
  }

 private:
  void header() {
    program.name = s_.isFloat ? "exchange_float" : "exchange";
    program.target = "cpu";
    program.mesh = {s_.ranks, 1, TokenHolders::kOwn};
    program.experts = s_.experts;
    program.topK = s_.topK;
    program.maxTokens = s_.maxTokens;
    program.cores = s_.cores;
    tokens_ = space("tokens", SpaceKind::kTokens, s_.tokenSlot, s_.window);
    rows_ = space("rows", SpaceKind::kRows, s_.slotRows, s_.window);
    sends_ = space("sends", SpaceKind::kSends, s_.slotRows, s_.window);
    returns_ = space("returns", SpaceKind::kReturns, s_.slotRows, s_.window);
    space("experts", SpaceKind::kExperts);
    expertIds_ = buffer("expert_ids", DType::kI32, {kDimT, fixedDim(s_.topK)}, Role::kInput);
  }

  DType type() const { return s_.isFloat ? DType::kF32 : DType::kBF16; }
  Tiling width(int32_t k = 0) const { return {.n = s_.hidden, .k = k}; }
  BufferId rows(const char* name, Dim first, Role role) {
    return buffer(name, type(), {first, fixedDim(s_.hidden)}, role);
  }
  BufferId ownRows(const char* name, Dim first, Role role, bool symmetric = false) {
    return own(name, type(), {first, fixedDim(s_.hidden)}, role, symmetric);
  }

  // Tokens to rows of the caller; `weights`, or none, go with them.
  void dispatch(BufferId tokens, BufferId weights, const char* arrivedName, const char* name) {
    const BufferId arrived = ownRows(arrivedName, kDimR, Role::kTemp, true);
    const BufferId handedOver = ownRows(name, kDimR, Role::kOutput), none;
    const BufferId rowWeights = weights ? own("row_probs", DType::kF32, {kDimR}, Role::kOutput, true) : none;
    const EventId there = rowsArrived();
    family({"dispatch",
            OpKind::kDispatch,
            sends_,
            1,
            width(),
            {tokens, weights},
            {arrived, rowWeights},
            {},
            {there},
            0});
    family({"hand_over", OpKind::kScale, rows_, 1, width(), {arrived}, {handedOver}, {there}, {}, 1});
  }

  // Rows of the caller, and scalars beside them or none, to sums of tokens.
  void combine(const char* rowsName, BufferId scalars, const char* returnedName, const char* sumName) {
    const BufferId of = rows(rowsName, kDimR, Role::kInput), none;
    const BufferId returned = ownRows(returnedName, kDimP, Role::kTemp, true);
    const BufferId sum = rows(sumName, kDimT, Role::kOutput);
    const BufferId returnedScalars =
        scalars ? own("returned_probs", DType::kF32, {kDimP}, Role::kTemp, true) : none;
    const BufferId tokenScalars =
        scalars ? buffer("d_probs", DType::kF32, {kDimT, fixedDim(s_.topK)}, Role::kOutput) : none;
    const EventId back = allReturned();
    family({"combine.return",
            OpKind::kCombineReturn,
            returns_,
            1,
            width(),
            {of, scalars},
            {returned, returnedScalars},
            {},
            {back},
            0});
    family({"combine.sum",
            OpKind::kCombineSum,
            tokens_,
            1,
            width(s_.topK),
            {returned, none, returnedScalars},
            {sum, tokenScalars},
            {back},
            {},
            1});
  }

  const ExchangeShape s_;
  SpaceId tokens_, rows_, sends_, returns_;
  BufferId expertIds_;
};

}  // namespace

TaskProgram buildExchangeProgram(const ExchangeShape& shape) { return Builder(shape).build(); }

}  // namespace sluice

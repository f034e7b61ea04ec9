#include "tests/testing/moe_program.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/program/op_table.h"
#include "runtime/program/sharding.h"
#include "tests/testing/program_builder.h"

namespace sluice {
namespace {

class Builder : private ProgramBuilder {
 public:
  explicit Builder(const MoeShape& shape) : s_(shape) {}

  TaskProgram build() {
    header();
    spaces();
    sharedBuffers();
    forward();
    if (!s_.forwardOnly) backward();
    setActivation();
    if (s_.tp > 1) shard();
    if (s_.inPlace) reorder();
    return std::move(program);
  }

 private:
  void setActivation() {
    for (Family& family : program.families)
      if (findInfo(family.op).usesActivation())
        family.tiling.activation = s_.activation, family.tiling.limit = toBFloat16(s_.limit);
  }

  // Families stand after those that write what they read.
  void shard() {
    program.buffers[gateUpWeight_.value].sharding = findShardedColumns(s_.activation);
    program.buffers[downWeight_.value].sharding = Sharding::kRows;
    for (const Family& family : program.families) {
      const std::vector<Sharding> written = *deriveShardings(program, family);
      for (size_t i = 0; i < std::min(written.size(), family.writes.size()); ++i)
        if (family.writes[i]) program.buffers[family.writes[i].value].sharding = written[i];
    }
  }

  // The priorities of the lanes that are left.
  void reorder() {
    for (Lane& lane : program.lanes) {
      if (lane.name == "dispatch.keep")
        lane.priority = 3;
      else if (lane.entry.value == 0)
        lane.priority -= lane.name == "up_proj" ? 1 : 2;
      else if (lane.name != "dispatch")
        lane.priority -= 1;
    }
  }

  void header() {
    program.name = "moe_ffn";
    program.target = "cpu";
    program.symbols = {{"hidden", s_.hidden}, {"intermediate", s_.intermediate}};
    program.mesh = {s_.ranks / s_.tp, s_.tp, s_.sameTokens ? TokenHolders::kSame : TokenHolders::kOwn};
    program.experts = s_.experts;
    program.topK = s_.topK;
    program.maxTokens = s_.maxTokens;
    program.cores = s_.cores;
  }

  void spaces() {
    tokens_ = space("tokens", SpaceKind::kTokens, s_.tokenSlot, s_.window);
    rows_ = space("rows", SpaceKind::kRows, s_.slotRows, s_.window);
    sends_ = space("sends", SpaceKind::kSends, s_.slotRows, s_.window);
    returns_ = space("returns", SpaceKind::kReturns, s_.slotRows, s_.window);
    experts_ = space("experts", SpaceKind::kExperts);
    products_ = rows_;
    if (grouped()) products_ = space("groups", SpaceKind::kGroups, s_.groupSlots * s_.slotRows, s_.window);
  }

  bool grouped() const { return s_.groupSlots > 0; }

  // The rows that a product reads have arrived; its tasks are done; the tasks of an activation are.
  EventId arrivedForProduct() {
    if (!grouped()) return rowsArrived();
    return event("group_rows", EventSpace::kGroups, EventUnit::kRows, ThresholdRule::kRowsOfSlot, 0, true);
  }
  EventId productDone(const char* name, int64_t tiles) {
    return done(name, grouped() ? EventSpace::kGroups : EventSpace::kRows, tiles);
  }
  // All slots of a product are done, whose rows are summed where they are.
  EventId summed(const char* name, int64_t tiles) {
    return event(name, EventSpace::kOne, EventUnit::kTasks,
                 grouped() ? ThresholdRule::kSlotsOfGroups : ThresholdRule::kSlotsOfRows, tiles, false);
  }
  EventId activationDone(const char* name, const char* ofGroup, int64_t tiles) {
    if (!grouped() || s_.fused) return productDone(name, tiles);
    return event(ofGroup, EventSpace::kGroups, EventUnit::kTasks, ThresholdRule::kSlotsOfGroup, tiles, false);
  }

  BufferId saved(const char* name, int64_t columns, bool symmetric) {
    const Role role = s_.forwardOnly ? Role::kTemp : Role::kSaved;
    return own(name, DType::kBF16, {kDimR, fixedDim(columns)}, role, symmetric);
  }

  void sharedBuffers() {
    const int64_t h = s_.hidden, i = s_.intermediate, k = s_.topK;
    const Dim e = program.expertDim();
    x_ = buffer("x", DType::kBF16, {kDimT, fixedDim(h)}, Role::kInput);
    expertIds_ = buffer("expert_ids", DType::kI32, {kDimT, fixedDim(k)}, Role::kInput);
    weights_ = buffer("expert_weights", DType::kF32, {kDimT, fixedDim(k)}, Role::kInput);
    gateUpWeight_ = buffer("gate_up_weight", DType::kBF16, {e, fixedDim(h), fixedDim(up())}, Role::kInput);
    downWeight_ = buffer("down_weight", DType::kBF16, {e, fixedDim(i), fixedDim(h)}, Role::kInput);
    if (!s_.inPlace)
      rowsX_ = saved("rows_x", h, true);
    else if (!s_.forwardOnly)
      rowsX_ = own("rows_x", DType::kBF16, {kDimT, fixedDim(h)}, Role::kSaved, false);
    if (!s_.fused || !s_.forwardOnly) gateUp_ = saved("gate_up", up(), false);
    if (s_.weightsAct)
      act_ = own("act", DType::kBF16, {kDimR, fixedDim(i)}, Role::kTemp, false);
    else
      act_ = saved("act", i, false);
    // Shared by buffers of both entries, and in backward by two whose rows follow each other.
    work_ = region("rows_work", Extent::kRows, 2 * std::max(h, i), false, false);
    if (!s_.inPlace) returned_ = region("returned", Extent::kPairs, 2 * h, true, false);
  }

  Tiling columns(int32_t n, int32_t k, bool transposed) const {
    return {.n = n, .k = k, .tileN = s_.tileN, .flags = uint16_t{transposed}};
  }
  static Tiling width(int32_t n, int32_t k = 0) { return {.n = n, .k = k}; }
  Tiling grad(int32_t m, int32_t n) const { return {.m = m, .n = n, .tileM = s_.tileM, .tileN = s_.tileN}; }
  int32_t gradTiles(int32_t m, int32_t n) const { return ceilDiv(m, s_.tileM) * ceilDiv(n, s_.tileN); }

  void forward() {
    const int h = s_.hidden, i = s_.intermediate;
    beginEntry("forward", expertIds_, {});
    const BufferId downOut = buffer("down_out", DType::kBF16, {kDimR, fixedDim(h)}, Role::kTemp, work_);
    const BufferId returned =
        s_.inPlace ? downOut
                   : buffer("combine.returned", DType::kBF16, {kDimP, fixedDim(h)}, Role::kTemp, returned_);
    const BufferId y = buffer("y", DType::kBF16, {kDimT, fixedDim(h)}, Role::kOutput);

    const int32_t downTiles = ceilDiv(h, s_.tileN);
    const EventId arrived = s_.inPlace ? EventId{} : arrivedForProduct();
    const EventId upDone = s_.fused ? EventId{} : productDone("up_proj_done", upTiles());
    const EventId swigluDone =
        activationDone("swiglu_done", "group_swiglu", s_.fused ? ceilDiv(i, s_.tileN) : 1);
    const EventId downDone =
        s_.inPlace ? summed("all_down_proj", downTiles) : productDone("down_proj_done", downTiles);
    const EventId back = s_.inPlace ? downDone : allReturned();
    const BufferId none;
    if (!s_.inPlace)
      family(
          {"dispatch", OpKind::kDispatch, sends_, 1, width(h), {x_, none}, {rowsX_, none}, {}, {arrived}, 0});
    else if (rowsX_)
      family({"dispatch.keep", OpKind::kScale, tokens_, 1, width(h), {x_}, {rowsX_}, {}, {}, 0});
    upProjection(arrived, upDone, swigluDone);
    family({"down_proj",
            OpKind::kGmm,
            products_,
            downTiles,
            columns(h, i, false),
            {act_, downWeight_},
            {downOut},
            {swigluDone},
            {downDone},
            3});
    if (!s_.inPlace)
      family({"combine.return",
              OpKind::kCombineReturn,
              returns_,
              1,
              width(h),
              {downOut, none},
              {returned, none},
              {downDone},
              {back},
              1});
    family({"combine.sum",
            OpKind::kCombineSum,
            tokens_,
            1,
            width(h, s_.topK),
            {returned, weights_, none},
            {y, none},
            {back},
            {},
            2});
  }

  // Columns of the first product.
  int32_t up() const { return findInfo(s_.activation).inputs * s_.intermediate; }
  int32_t upTiles() const { return ceilDiv(up(), s_.tileN); }

  // gmm and activation, as two families or as one.
  void upProjection(EventId arrived, EventId upDone, EventId swigluDone) {
    const int h = s_.hidden, i = s_.intermediate;
    const BufferId rows = s_.inPlace ? x_ : rowsX_;
    if (s_.fused) {
      family({"up_proj",
              OpKind::kGmmActivation,
              products_,
              ceilDiv(i, s_.tileN),
              columns(i, h, false),
              {rows, gateUpWeight_},
              {act_, gateUp_},
              {arrived},
              {swigluDone},
              5});
      return;
    }
    family({"up_proj",
            OpKind::kGmm,
            products_,
            upTiles(),
            columns(up(), h, false),
            {rows, gateUpWeight_},
            {gateUp_},
            {arrived},
            {upDone},
            5});
    family({"swiglu", OpKind::kActivation, rows_, 1, width(i), {gateUp_}, {act_}, {upDone}, {swigluDone}, 4});
  }

  struct BackwardBuffers {
    BufferId dy, rowsDy, rowWeights, actGrad, gateUpGrad, rowWeightGrad, rowsDx, returned, returnedScalars;
    BufferId dx, dWeights, gateUpWeightGrad, downWeightGrad, weightedAct;
  };

  BackwardBuffers backwardBuffers() {
    const int64_t h = s_.hidden, i = s_.intermediate, k = s_.topK;
    const Dim e = program.expertDim();
    const auto rows = [this](const char* name, int64_t n, RegionId where) {
      return buffer(name, DType::kBF16, {kDimR, fixedDim(n)}, Role::kTemp, where);
    };
    const RegionId rowsDy = s_.inPlace ? RegionId{} : region("rows_dy", Extent::kRows, 2 * h, true, false);
    const RegionId rowWeights = region("row_weights", Extent::kRows, 4, true, false);
    const RegionId gateUpGrad = region("gate_up_grad", Extent::kRows, 2 * up(), false, false);
    const RegionId rowWeightGrad = region("row_weight_grad", Extent::kRows, 4, false, false);
    const RegionId returnedScalars =
        s_.inPlace ? RegionId{} : region("returned_scalars", Extent::kPairs, 4, true, false);
    BackwardBuffers b;
    b.dy = buffer("dy", DType::kBF16, {kDimT, fixedDim(h)}, Role::kInput);
    b.rowsDy = s_.inPlace ? b.dy : rows("rows_dy", h, rowsDy);
    b.rowWeights = buffer("row_weights", DType::kF32, {kDimR}, Role::kTemp, rowWeights);
    if (!s_.fused) b.actGrad = rows("act_grad_y", i, work_);
    b.gateUpGrad = rows("gate_up_grad", up(), gateUpGrad);
    b.rowWeightGrad = buffer("row_weight_grad", DType::kF32, {kDimR}, Role::kTemp, rowWeightGrad);
    b.rowsDx = rows("rows_dx", h, work_);
    if (s_.weightsAct)
      b.weightedAct = own("act_weighted", DType::kBF16, {kDimR, fixedDim(i)}, Role::kTemp, false);
    b.returned = b.rowsDx;
    b.returnedScalars = b.rowWeightGrad;
    if (!s_.inPlace) {
      b.returned =
          buffer("backward.combine.returned", DType::kBF16, {kDimP, fixedDim(h)}, Role::kTemp, returned_);
      b.returnedScalars =
          buffer("backward.combine.returned_scalars", DType::kF32, {kDimP}, Role::kTemp, returnedScalars);
    }
    b.dx = buffer("dx", DType::kBF16, {kDimT, fixedDim(h)}, Role::kOutput);
    b.dWeights = buffer("d_expert_weights", DType::kF32, {kDimT, fixedDim(k)}, Role::kOutput);
    b.gateUpWeightGrad =
        buffer("gate_up_weight_grad", DType::kF32, {e, fixedDim(h), fixedDim(up())}, Role::kOutput);
    b.downWeightGrad = buffer("down_weight_grad", DType::kF32, {e, fixedDim(i), fixedDim(h)}, Role::kOutput);
    return b;
  }

  // What the gradient of the activation writes.
  std::vector<BufferId> gradientsOf(const BackwardBuffers& b) const {
    std::vector<BufferId> gradients = {b.gateUpGrad, b.rowWeightGrad};
    if (s_.weightsAct) gradients.push_back(b.weightedAct);
    return gradients;
  }

  // gmm and gradient of the activation, as two families or as one of a single tile: it sums whole rows.
  void actGradient(const BackwardBuffers& b, EventId arrived, EventId actDone, std::array<EventId, 2> done) {
    const int h = s_.hidden, i = s_.intermediate;
    if (s_.fused) {
      family({"act_grad",
              OpKind::kGmmActivationGrad,
              products_,
              1,
              {0, i, h, 0, i, 4},
              {b.rowsDy, downWeight_, gateUp_, b.rowWeights},
              gradientsOf(b),
              {arrived},
              done,
              5});
      return;
    }
    family({"act_grad",
            OpKind::kGmm,
            products_,
            ceilDiv(i, s_.tileN),
            columns(i, h, true),
            {b.rowsDy, downWeight_},
            {b.actGrad},
            {arrived},
            {actDone},
            5});
  }

  void swigluGradient(const BackwardBuffers& b, EventId actDone, std::array<EventId, 2> done) {
    if (s_.fused) return;
    family({"swiglu_grad",
            OpKind::kActivationGrad,
            rows_,
            1,
            width(s_.intermediate),
            {b.actGrad, gateUp_, b.rowWeights},
            gradientsOf(b),
            {actDone},
            done,
            4});
  }

  void backward() {
    const int h = s_.hidden, i = s_.intermediate;
    beginEntry("backward", {}, EntryId{0});
    const BackwardBuffers b = backwardBuffers();
    const int32_t gateTiles = ceilDiv(h, s_.tileN);
    const EventId arrived = arrivedForProduct();
    const EventId ofExpert = s_.weightsAct ? EventId{} : expertRows();
    const EventId actDone = s_.fused ? EventId{} : productDone("act_grad_done", ceilDiv(i, s_.tileN));
    const EventId swigluDone = activationDone("swiglu_grad_done", "group_swiglu_grad", 1);
    const EventId expertSwiglu = event(
        "expert_swiglu_grad", EventSpace::kExperts, EventUnit::kTasks,
        grouped() && s_.fused ? ThresholdRule::kGroupsOfExpert : ThresholdRule::kSlotsOfExpert, 1, false);
    const EventId gateDone =
        s_.inPlace ? summed("all_gate_grad", gateTiles) : productDone("gate_grad_done", gateTiles);
    const EventId back = s_.inPlace ? gateDone : allReturned();
    const EventId allGrads = s_.sumLast ? allExperts("all_grads", gradTiles(i, h)) : EventId{};
    const BufferId none;
    family({"dispatch",
            OpKind::kDispatch,
            sends_,
            1,
            width(h),
            {s_.inPlace ? none : b.dy, weights_},
            {s_.inPlace ? none : b.rowsDy, b.rowWeights},
            {},
            {arrived, ofExpert},
            0});
    actGradient(b, arrived, actDone, {swigluDone, expertSwiglu});
    if (s_.weightsAct) swigluGradient(b, actDone, {swigluDone, expertSwiglu});  // writes what is read next
    family({"down_weight_grad",
            OpKind::kGmmWeightGrad,
            experts_,
            gradTiles(i, h),
            grad(i, h),
            s_.weightsAct ? std::vector{b.weightedAct, b.rowsDy} : std::vector{act_, b.rowsDy, b.rowWeights},
            {b.downWeightGrad},
            {s_.weightsAct ? expertSwiglu : ofExpert},
            {allGrads},
            6});
    if (!s_.weightsAct) swigluGradient(b, actDone, {swigluDone, expertSwiglu});
    family({"gate_grad",
            OpKind::kGmm,
            products_,
            gateTiles,
            columns(h, up(), true),
            {b.gateUpGrad, gateUpWeight_},
            {b.rowsDx},
            {swigluDone},
            {gateDone},
            3});
    if (!s_.inPlace)
      family({"combine.return",
              OpKind::kCombineReturn,
              returns_,
              1,
              width(h),
              {b.rowsDx, b.rowWeightGrad},
              {b.returned, b.returnedScalars},
              {gateDone},
              {back},
              1});
    family({"combine.sum",
            OpKind::kCombineSum,
            tokens_,
            1,
            width(h, s_.topK),
            {b.returned, none, b.returnedScalars},
            {b.dx, b.dWeights},
            {back, allGrads},
            {},
            2});
    family({"gate_up_weight_grad",
            OpKind::kGmmWeightGrad,
            experts_,
            gradTiles(h, up()),
            grad(h, up()),
            {rowsX_, b.gateUpGrad, none},
            {b.gateUpWeightGrad},
            {expertSwiglu},
            {},
            7});
  }

  const MoeShape s_;
  SpaceId tokens_, rows_, sends_, returns_, experts_;
  SpaceId products_;  // rows or groups
  BufferId x_, expertIds_, weights_, gateUpWeight_, downWeight_, rowsX_, gateUp_, act_;
  RegionId work_, returned_;
};

}  // namespace

TaskProgram buildMoeProgram(const MoeShape& shape) { return Builder(shape).build(); }

}  // namespace sluice

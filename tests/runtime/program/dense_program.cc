#include "tests/runtime/program/dense_program.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tests/testing/program_builder.h"

namespace sluice {
namespace {

constexpr int kLowRank = 3;

class Builder : ProgramBuilder {
 public:
  Builder(const MoeShape& shape, bool fused)
      : s_(shape), h_(shape.hidden), i_(shape.intermediate), fused_(fused) {}

  TaskProgram build() {
    header();
    buffers();
    beginEntry("forward", ids_, {});
    forwardRouted();
    forwardDense();
    beginEntry("backward", {}, EntryId{0});
    backwardRouted();
    backwardDense();
    return std::move(program);
  }

 private:
  void header() {
    program.name = fused_ ? "fused" : "dense";
    program.target = "cpu";
    program.mesh.ep = s_.ranks;
    program.experts = s_.experts;
    program.topK = s_.topK;
    program.maxTokens = s_.maxTokens;
    program.cores = s_.cores;
    tokens_ = space("tokens", SpaceKind::kTokens, s_.tokenSlot, s_.window);
    rows_ = space("rows", SpaceKind::kRows, s_.slotRows, s_.window);
    sends_ = space("sends", SpaceKind::kSends, s_.slotRows, s_.window);
    returns_ = space("returns", SpaceKind::kReturns, s_.slotRows, s_.window);
    experts_ = space("experts", SpaceKind::kExperts);
    once_ = space("once", SpaceKind::kOnce);
  }

  BufferId caller(const char* name, DType type, std::vector<Dim> shape, Role role) {
    return buffer(name, type, std::move(shape), role);
  }
  // Adds a buffer of the runtime, in a region of its own.
  BufferId temp(const char* name, Dim first, int64_t columns) {
    return own(name, DType::kBF16, {first, fixedDim(columns)}, Role::kTemp);
  }
  BufferId sent(const char* name, Dim first, int64_t columns, Role role = Role::kTemp) {
    return own(name, DType::kBF16, {first, fixedDim(columns)}, role, true);
  }
  BufferId saved(const char* name, Dim first, int64_t columns) {
    return own(name, DType::kBF16, {first, fixedDim(columns)}, Role::kSaved);
  }
  BufferId scalar(const char* name, Dim first, bool isSent) {
    return own(name, DType::kF32, {first}, Role::kTemp, isSent);
  }
  // One that lies where `other` does.
  BufferId sharing(BufferId other, const char* name, int64_t columns) {
    const BufferId id = temp(name, program.at(other).shape[0], columns);
    const int64_t stride = program.at(program.at(id).region).stride;
    program.regions.pop_back();
    program.buffers[id.value].region = program.at(other).region;
    Region& region = program.regions[program.at(other).region.value];
    region.stride = std::max(region.stride, stride);
    return id;
  }

  void buffers() {
    const int64_t k = s_.topK;
    const Dim e = program.expertDim();
    const auto weight = [&](const char* name, std::vector<Dim> shape) {
      return caller(name, DType::kBF16, std::move(shape), Role::kInput);
    };
    x_ = weight("x", {kDimT, fixedDim(h_)});
    ids_ = caller("expert_ids", DType::kI32, {kDimT, fixedDim(k)}, Role::kInput);
    weights_ = caller("expert_weights", DType::kF32, {kDimT, fixedDim(k)}, Role::kInput);
    up_ = weight("gate_up_weight", {e, fixedDim(h_), fixedDim(2 * i_)});
    down_ = weight("down_weight", {e, fixedDim(i_), fixedDim(h_)});
    if (!fused_) {
      lowA_ = weight("low_a", {e, fixedDim(h_), fixedDim(kLowRank)});
      lowB_ = weight("low_b", {e, fixedDim(kLowRank), fixedDim(2 * i_)});
    }
    denseUp_ = weight("dense_up_weight", {fixedDim(h_), fixedDim(2 * i_)});
    denseDown_ = weight("dense_down_weight", {fixedDim(i_), fixedDim(h_)});
    rowsX_ = sent("rows_x", kDimR, h_, Role::kSaved);
    gateUp_ = saved("gate_up", kDimR, 2 * i_);
    act_ = saved("act", kDimR, i_);
    denseGateUp_ = saved("dense_gate_up", kDimT, 2 * i_);
    denseAct_ = saved("dense_act", kDimT, i_);
  }

  // --- families ------------------------------------------------------------------------------------------

  void add(const char* name, OpKind op, SpaceId space, const Tiling& tiling, std::vector<BufferId> reads,
           std::vector<BufferId> writes, std::array<EventId, 2> waits, std::array<EventId, 2> signals) {
    const int32_t tiles = (tiling.tileM > 0 ? ceilDiv(tiling.m, tiling.tileM) : 1) *
                          (tiling.tileN > 0 ? ceilDiv(tiling.n, tiling.tileN) : 1);
    family({name, op, space, tiles, tiling, std::move(reads), std::move(writes), waits, signals,
            static_cast<int32_t>(program.lanes.size())});
  }

  Tiling product(int64_t n, int64_t k, uint16_t flags = 0, float alpha = 0) const {
    return {.n = static_cast<int32_t>(n),
            .k = static_cast<int32_t>(k),
            .tileN = s_.tileN,
            .flags = flags,
            .alpha = alpha};
  }
  static Tiling width(int64_t n, int64_t k = 0, uint16_t flags = 0, float alpha = 0) {
    return {.n = static_cast<int32_t>(n), .k = static_cast<int32_t>(k), .flags = flags, .alpha = alpha};
  }
  static Tiling clamped(Tiling tiling) {
    tiling.activation = ActivationKind::kSwigluClamp, tiling.limit = toBFloat16(2);
    return tiling;
  }
  Tiling weightGrad(int64_t m, int64_t n, float alpha = 0) const {
    return {.m = static_cast<int32_t>(m),
            .n = static_cast<int32_t>(n),
            .tileM = s_.tileM,
            .tileN = s_.tileN,
            .alpha = alpha};
  }
  int32_t countTiles(int64_t n) const { return ceilDiv(static_cast<int32_t>(n), s_.tileN); }

  // --- forward -------------------------------------------------------------------------------------------

  void forwardRouted() {
    const EventId here = rowsArrived(), back = allReturned();
    add("dispatch", OpKind::kDispatch, sends_, width(h_), {x_, none_}, {rowsX_, none_}, {}, {here});
    const EventId acted =
        fused_ ? done("up_act", EventSpace::kRows, countTiles(i_)) : done("act", EventSpace::kRows, 1);
    BufferId upOut;
    if (fused_) {
      add("up_act", OpKind::kGmmActivation, rows_, product(i_, h_), {rowsX_, up_}, {act_, gateUp_}, {here},
          {acted});
    } else {
      upOut = temp("up_out", kDimR, 2 * i_);
      upProjection(here, upOut, acted);
    }
    const BufferId downOut = fused_ ? temp("down_out", kDimR, h_) : sharing(upOut, "down_out", h_);
    const EventId downDone = done("down_proj", EventSpace::kRows, countTiles(h_));
    add("down_proj", OpKind::kGmm, rows_, product(h_, i_), {act_, down_}, {downOut}, {acted}, {downDone});
    const BufferId returned = sent("returned", kDimP, h_);
    add("combine.return", OpKind::kCombineReturn, returns_, width(h_), {downOut, none_}, {returned, none_},
        {downDone}, {back});
    routed_ = temp("routed", kDimT, h_);
    summed_ = done("combine.sum", EventSpace::kTokens, 1);
    add("combine.sum", OpKind::kCombineSum, tokens_, width(h_, s_.topK), {returned, weights_, none_},
        {routed_, none_}, {back}, {summed_});
  }

  void upProjection(EventId here, BufferId upOut, EventId acted) {
    const BufferId low = temp("low", kDimR, kLowRank), lowUp = temp("low_up", kDimR, 2 * i_);
    const EventId upDone = done("up_proj", EventSpace::kRows, countTiles(2 * i_));
    const EventId lowDone = done("low_a", EventSpace::kRows, countTiles(kLowRank));
    const EventId lowUpDone = done("low_b", EventSpace::kRows, countTiles(2 * i_));
    const EventId added = done("up_add", EventSpace::kRows, 1);
    add("up_proj", OpKind::kGmm, rows_, product(2 * i_, h_), {rowsX_, up_}, {upOut}, {here}, {upDone});
    add("low_a", OpKind::kGmm, rows_, product(kLowRank, h_), {rowsX_, lowA_}, {low}, {here}, {lowDone});
    add("low_b", OpKind::kGmm, rows_, product(2 * i_, kLowRank, 0, 0.5f), {low, lowB_}, {lowUp}, {lowDone},
        {lowUpDone});
    add("up_add", OpKind::kAdd, rows_, width(2 * i_), {upOut, lowUp}, {gateUp_}, {upDone, lowUpDone},
        {added});
    add("act", OpKind::kActivation, rows_, width(i_), {gateUp_}, {act_}, {added}, {acted});
  }

  void forwardDense() {
    const EventId acted = fused_ ? done("dense_up_act", EventSpace::kTokens, countTiles(i_))
                                 : done("dense_act", EventSpace::kTokens, 1);
    if (fused_) {
      add("dense_up_act", OpKind::kGmmActivation, tokens_, clamped(product(i_, h_)), {x_, denseUp_},
          {denseAct_, denseGateUp_}, {}, {acted});
    } else {
      const EventId upDone = done("dense_up", EventSpace::kTokens, countTiles(2 * i_));
      add("dense_up", OpKind::kGmm, tokens_, product(2 * i_, h_), {x_, denseUp_}, {denseGateUp_}, {},
          {upDone});
      add("dense_act", OpKind::kActivation, tokens_, clamped(width(i_)), {denseGateUp_}, {denseAct_},
          {upDone}, {acted});
    }
    const BufferId out = temp("dense_out", kDimT, h_);
    const EventId outDone = done("dense_down", EventSpace::kTokens, countTiles(h_));
    add("dense_down", OpKind::kGmm, tokens_, product(h_, i_), {denseAct_, denseDown_}, {out}, {acted},
        {outDone});
    const BufferId y = caller("y", DType::kBF16, {kDimT, fixedDim(h_)}, Role::kOutput);
    add("y", OpKind::kAdd, tokens_, width(h_), {routed_, out}, {y}, {summed_, outDone}, {});
  }

  // --- backward ------------------------------------------------------------------------------------------

  void backwardRouted() {
    const Dim e = program.expertDim();
    const BufferId dy = caller("dy", DType::kBF16, {kDimT, fixedDim(h_)}, Role::kInput);
    scaled_ = temp("scaled_dy", kDimT, h_);
    scaledDone_ = done("scale", EventSpace::kTokens, 1);
    scaledAll_ = allTokens("scale_all", 1);
    add("scale", OpKind::kScale, tokens_, width(h_, 0, 0, 0.5f), {dy}, {scaled_}, {},
        {scaledDone_, scaledAll_});

    const BufferId rowsDy = sent("rows_dy", kDimR, h_);
    const BufferId rowWeights = scalar("row_weights", kDimR, true);
    const EventId here = rowsArrived(), back = allReturned();
    const EventId ofExpert = expertRows();
    add("dispatch", OpKind::kDispatch, sends_, width(h_), {scaled_, weights_}, {rowsDy, rowWeights},
        {scaledAll_}, {here, ofExpert});

    const BufferId grad = temp("gate_up_grad", kDimR, 2 * i_);
    const BufferId rowGrad = scalar("row_weight_grad", kDimR, false);
    const EventId gradDone = done("act_grad", EventSpace::kRows, 1);
    const EventId gradOfExpert = expertDone("expert_act_grad", 1);
    BufferId actGrad;
    if (fused_) {
      Tiling whole = width(i_, h_, 4);
      whole.tileN = static_cast<int32_t>(i_);  // one tile: it computes the gradient of the rows' weights
      add("act_grad", OpKind::kGmmActivationGrad, rows_, whole, {rowsDy, down_, gateUp_, rowWeights},
          {grad, rowGrad}, {here}, {gradDone, gradOfExpert});
    } else {
      actGrad = temp("act_grad_y", kDimR, i_);
      const EventId productDone = done("act_grad_y", EventSpace::kRows, countTiles(i_));
      add("act_grad_y", OpKind::kGmm, rows_, product(i_, h_, 1), {rowsDy, down_}, {actGrad}, {here},
          {productDone});
      add("act_grad", OpKind::kActivationGrad, rows_, width(i_), {actGrad, gateUp_, rowWeights},
          {grad, rowGrad}, {productDone}, {gradDone, gradOfExpert});
    }
    const BufferId downGrad =
        caller("down_weight_grad", DType::kF32, {e, fixedDim(i_), fixedDim(h_)}, Role::kOutput);
    add("down_weight_grad", OpKind::kGmmWeightGrad, experts_, weightGrad(i_, h_), {act_, rowsDy, rowWeights},
        {downGrad}, {ofExpert}, {});
    const BufferId upGrad =
        caller("gate_up_weight_grad", DType::kBF16, {e, fixedDim(h_), fixedDim(2 * i_)}, Role::kOutput);
    add("gate_up_weight_grad", OpKind::kGmmWeightGrad, experts_, weightGrad(h_, 2 * i_),
        {rowsX_, grad, none_}, {upGrad}, {gradOfExpert}, {});
    backwardReturn(fused_ ? temp("rows_dx", kDimR, h_) : sharing(actGrad, "rows_dx", h_), grad, rowGrad,
                   gradDone, back);
  }

  void backwardReturn(BufferId rowsDx, BufferId grad, BufferId rowGrad, EventId gradDone, EventId back) {
    const EventId dxDone = done("gate_grad", EventSpace::kRows, countTiles(h_));
    add("gate_grad", OpKind::kGmm, rows_, product(h_, 2 * i_, 1), {grad, up_}, {rowsDx}, {gradDone},
        {dxDone});
    const BufferId returned = sent("returned_dx", kDimP, h_);
    const BufferId scalars = scalar("returned_scalars", kDimP, true);
    add("combine.return", OpKind::kCombineReturn, returns_, width(h_), {rowsDx, rowGrad}, {returned, scalars},
        {dxDone}, {back});
    routed_ = temp("routed_dx", kDimT, h_);
    summed_ = done("combine.sum", EventSpace::kTokens, 1);
    const BufferId dWeights =
        caller("d_expert_weights", DType::kF32, {kDimT, fixedDim(s_.topK)}, Role::kOutput);
    add("combine.sum", OpKind::kCombineSum, tokens_, width(h_, s_.topK), {returned, none_, scalars},
        {routed_, dWeights}, {back}, {summed_});
  }

  void backwardDense() {
    const BufferId grad = temp("dense_gate_up_grad", kDimT, 2 * i_);
    const int32_t tiles = fused_ ? countTiles(i_) : 1;
    const EventId gradDone = done("dense_act_grad", EventSpace::kTokens, tiles);
    const EventId gradAll = allTokens("dense_act_grad_all", tiles);
    BufferId actGrad;
    if (fused_) {
      add("dense_act_grad", OpKind::kGmmActivationGrad, tokens_, clamped(product(i_, h_, 4)),
          {scaled_, denseDown_, denseGateUp_, none_}, {grad, none_}, {scaledDone_}, {gradDone, gradAll});
    } else {
      actGrad = temp("dense_act_grad_y", kDimT, i_);
      const EventId productDone = done("dense_act_grad_y", EventSpace::kTokens, countTiles(i_));
      add("dense_act_grad_y", OpKind::kGmm, tokens_, product(i_, h_, 1), {scaled_, denseDown_}, {actGrad},
          {scaledDone_}, {productDone});
      add("dense_act_grad", OpKind::kActivationGrad, tokens_, clamped(width(i_)),
          {actGrad, denseGateUp_, none_}, {grad, none_}, {productDone}, {gradDone, gradAll});
    }
    const BufferId downGrad =
        caller("dense_down_weight_grad", DType::kF32, {fixedDim(i_), fixedDim(h_)}, Role::kOutput);
    add("dense_down_weight_grad", OpKind::kGmmWeightGrad, once_, weightGrad(i_, h_),
        {denseAct_, scaled_, none_}, {downGrad}, {scaledAll_}, {});
    const BufferId upGrad =
        caller("dense_up_weight_grad", DType::kBF16, {fixedDim(h_), fixedDim(2 * i_)}, Role::kOutput);
    add("dense_up_weight_grad", OpKind::kGmmWeightGrad, once_, weightGrad(h_, 2 * i_, 2.0f),
        {x_, grad, none_}, {upGrad}, {gradAll}, {});
    const BufferId denseDx = fused_ ? temp("dense_dx", kDimT, h_) : sharing(actGrad, "dense_dx", h_);
    const EventId dxDone = done("dense_dx", EventSpace::kTokens, countTiles(h_));
    add("dense_dx", OpKind::kGmm, tokens_, product(h_, 2 * i_, 1), {grad, denseUp_}, {denseDx}, {gradDone},
        {dxDone});
    const BufferId dx = caller("dx", DType::kBF16, {kDimT, fixedDim(h_)}, Role::kOutput);
    add("dx", OpKind::kAdd, tokens_, width(h_), {routed_, denseDx}, {dx}, {summed_, dxDone}, {});
  }

  const MoeShape s_;
  const int64_t h_, i_;
  const bool fused_;
  SpaceId tokens_, rows_, sends_, returns_, experts_, once_;
  const BufferId none_;
  BufferId x_, ids_, weights_, up_, down_, lowA_, lowB_, denseUp_, denseDown_;
  BufferId rowsX_, gateUp_, act_, denseGateUp_, denseAct_;
  BufferId routed_, scaled_;  // of the entry at hand
  EventId summed_, scaledDone_, scaledAll_;
};

}  // namespace

TaskProgram buildDenseProgram(const MoeShape& shape, bool fused) { return Builder(shape, fused).build(); }

}  // namespace sluice

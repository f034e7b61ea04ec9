#include "tests/runtime/program/dense_program.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr Dim kT{Extent::kTokens, 0};
constexpr Dim kR{Extent::kRows, 0};
constexpr Dim kP{Extent::kPairs, 0};
constexpr uint32_t kClampAtTwo = 1u | 0x4000u << 16;
constexpr int kLowRank = 3;

Dim fixed(int64_t size) { return {Extent::kFixed, size}; }

template <class IdType, class T>
IdType append(std::vector<T>& table, T value) {
  table.push_back(std::move(value));
  return IdType{static_cast<uint32_t>(table.size() - 1)};
}

class Builder {
 public:
  Builder(const MoeShape& shape, bool fused)
      : s_(shape), h_(shape.hidden), i_(shape.intermediate), fused_(fused) {}

  TaskProgram build() {
    header();
    buffers();
    entry_ = append<EntryId>(p_.entries, Entry{"forward", ids_, {}});
    forwardRouted();
    forwardDense();
    entry_ = append<EntryId>(p_.entries, Entry{"backward", {}, EntryId{0}});
    backwardRouted();
    backwardDense();
    return std::move(p_);
  }

 private:
  void header() {
    p_.name = fused_ ? "fused" : "dense";
    p_.target = "cpu";
    p_.ranks = s_.ranks;
    p_.experts = s_.experts;
    p_.topK = s_.topK;
    p_.maxTokens = s_.maxTokens;
    p_.cores = s_.cores;
    const auto add = [this](const char* name, SpaceKind kind, int slotSize, int window) {
      return append<SpaceId>(p_.spaces, Space{name, kind, slotSize, window});
    };
    tokens_ = add("tokens", SpaceKind::kTokens, s_.tokenSlot, s_.window);
    rows_ = add("rows", SpaceKind::kRows, s_.slotRows, s_.window);
    sends_ = add("sends", SpaceKind::kSends, s_.slotRows, s_.window);
    returns_ = add("returns", SpaceKind::kReturns, s_.slotRows, s_.window);
    experts_ = add("experts", SpaceKind::kExperts, 1, 1);
    once_ = add("once", SpaceKind::kOnce, 1, 1);
  }

  // A buffer of the caller; with `region` one of the runtime, with a region of its own.
  BufferId caller(const char* name, DType type, std::vector<Dim> shape, Role role) {
    return append<BufferId>(p_.buffers, Buffer{name, "", type, std::move(shape), role, {}});
  }
  BufferId own(const char* name, DType type, Dim first, int64_t columns, Role role, bool symmetric = false) {
    const int64_t bytes = dtypeBytes(type) * columns;
    const int64_t stride = bytes < 64 ? bytes : (bytes + 63) / 64 * 64;
    const RegionId region =
        append<RegionId>(p_.regions, Region{name, first.extent, stride, symmetric, role == Role::kSaved});
    std::vector<Dim> shape{first};
    if (type == DType::kBF16) shape.push_back(fixed(columns));
    return append<BufferId>(p_.buffers, Buffer{name, "", type, std::move(shape), role, region});
  }
  BufferId temp(const char* name, Dim first, int64_t columns) {
    return own(name, DType::kBF16, first, columns, Role::kTemp);
  }
  BufferId saved(const char* name, Dim first, int64_t columns, bool symmetric = false) {
    return own(name, DType::kBF16, first, columns, Role::kSaved, symmetric);
  }
  // One that lies where `other` does.
  BufferId sharing(BufferId other, const char* name, int64_t columns) {
    const BufferId id = temp(name, p_.at(other).shape[0], columns);
    const int64_t stride = p_.at(p_.at(id).region).stride;
    p_.regions.pop_back();
    p_.buffers[id.value].region = p_.at(other).region;
    Region& region = p_.regions[p_.at(other).region.value];
    region.stride = std::max(region.stride, stride);
    return id;
  }

  void buffers() {
    const int64_t e = p_.expertsPerRank(), k = s_.topK;
    const auto weight = [&](const char* name, std::vector<Dim> shape) {
      return caller(name, DType::kBF16, std::move(shape), Role::kInput);
    };
    x_ = weight("x", {kT, fixed(h_)});
    ids_ = caller("expert_ids", DType::kI32, {kT, fixed(k)}, Role::kInput);
    weights_ = caller("expert_weights", DType::kF32, {kT, fixed(k)}, Role::kInput);
    up_ = weight("gate_up_weight", {fixed(e), fixed(h_), fixed(2 * i_)});
    down_ = weight("down_weight", {fixed(e), fixed(i_), fixed(h_)});
    if (!fused_) {
      lowA_ = weight("low_a", {fixed(e), fixed(h_), fixed(kLowRank)});
      lowB_ = weight("low_b", {fixed(e), fixed(kLowRank), fixed(2 * i_)});
    }
    denseUp_ = weight("dense_up_weight", {fixed(h_), fixed(2 * i_)});
    denseDown_ = weight("dense_down_weight", {fixed(i_), fixed(h_)});
    rowsX_ = saved("rows_x", kR, h_, true);
    gateUp_ = saved("gate_up", kR, 2 * i_);
    act_ = saved("act", kR, i_);
    denseGateUp_ = saved("dense_gate_up", kT, 2 * i_);
    denseAct_ = saved("dense_act", kT, i_);
  }

  // --- events and families -------------------------------------------------------------------------------

  EventId event(const std::string& name, EventSpace space, ThresholdRule rule, int64_t factor) {
    const bool rows = rule == ThresholdRule::kRowsOfSlot || rule == ThresholdRule::kRowsOfExpert ||
                      rule == ThresholdRule::kValidPairs;
    return append<EventId>(
        p_.events,
        EventArray{name, entry_, space, rows ? EventUnit::kRows : EventUnit::kTasks, rule, factor, rows});
  }
  EventId arrived() { return event("rows_arrived", EventSpace::kRows, ThresholdRule::kRowsOfSlot, 0); }
  EventId returned() { return event("returned", EventSpace::kOne, ThresholdRule::kValidPairs, 0); }
  // One counter a slot of the family's own space, and one for all slots of tokens.
  EventId done(const char* family, EventSpace space, int64_t tiles = 1) {
    return event(std::string(family) + "_done", space, ThresholdRule::kConstant, tiles);
  }
  EventId allDone(const char* family, int64_t tiles = 1) {
    return event(std::string(family) + "_all", EventSpace::kOne, ThresholdRule::kSlotsOfTokens, tiles);
  }

  using Links = std::array<EventId, 2>;

  // The family and its lane: task (slot, tile) goes to seat (slot * tiles + tile) mod cores.
  void family(const char* name, OpKind op, SpaceId space, const Tiling& tiling, std::vector<BufferId> reads,
              std::vector<BufferId> writes, Links waits, Links signals) {
    const int32_t tiles = (tiling.tileM > 0 ? ceilDiv(tiling.m, tiling.tileM) : 1) *
                          (tiling.tileN > 0 ? ceilDiv(tiling.n, tiling.tileN) : 1);
    const FamilyId id =
        append<FamilyId>(p_.families, Family{name, "", "", entry_, op, CoreKind::kUnified, space, tiles,
                                             tiling, std::move(reads), std::move(writes)});
    const int64_t count = int64_t{p_.at(space).window} * tiles;
    Lane lane{name,
              entry_,
              space,
              CoreKind::kUnified,
              static_cast<int32_t>(p_.lanes.size()),
              static_cast<int32_t>(count % s_.cores),
              {}};
    lane.seats.resize(s_.cores);
    for (int64_t task = 0; task < count; ++task)
      lane.seats[task % s_.cores].push_back(
          {id, static_cast<uint32_t>(task / tiles), static_cast<uint32_t>(task % tiles), 0, waits, signals});
    p_.lanes.push_back(std::move(lane));
  }

  Tiling product(int64_t n, int64_t k, uint32_t flags = 0, float alpha = 0) const {
    return {0, static_cast<int32_t>(n), static_cast<int32_t>(k), 0, s_.tileN, flags, alpha, 0};
  }
  static Tiling width(int64_t n, int64_t k = 0, uint32_t flags = 0, float alpha = 0) {
    return {0, static_cast<int32_t>(n), static_cast<int32_t>(k), 0, 0, flags, alpha, 0};
  }
  Tiling weightGrad(int64_t m, int64_t n, float alpha = 0) const {
    return {static_cast<int32_t>(m), static_cast<int32_t>(n), 0, s_.tileM, s_.tileN, 0, alpha, 0};
  }
  int32_t tilesOf(int64_t n) const { return ceilDiv(static_cast<int32_t>(n), s_.tileN); }

  // --- forward -------------------------------------------------------------------------------------------

  void forwardRouted() {
    const EventId here = arrived(), back = returned();
    family("dispatch", OpKind::kDispatch, sends_, width(h_), {x_, none_}, {rowsX_, none_}, {}, {here});
    const EventId acted =
        fused_ ? done("up_act", EventSpace::kRows, tilesOf(i_)) : done("act", EventSpace::kRows);
    BufferId upOut;
    if (fused_) {
      family("up_act", OpKind::kGmmActivation, rows_, product(i_, h_), {rowsX_, up_}, {act_, gateUp_}, {here},
             {acted});
    } else {
      upOut = temp("up_out", kR, 2 * i_);
      upProjection(here, upOut, acted);
    }
    const BufferId downOut = fused_ ? temp("down_out", kR, h_) : sharing(upOut, "down_out", h_);
    const EventId downDone = done("down_proj", EventSpace::kRows, tilesOf(h_));
    family("down_proj", OpKind::kGmm, rows_, product(h_, i_), {act_, down_}, {downOut}, {acted}, {downDone});
    const BufferId returned = own("returned", DType::kBF16, kP, h_, Role::kTemp, true);
    family("combine.return", OpKind::kCombineReturn, returns_, width(h_), {downOut, none_}, {returned, none_},
           {downDone}, {back});
    routed_ = temp("routed", kT, h_);
    summed_ = done("combine.sum", EventSpace::kTokens);
    family("combine.sum", OpKind::kCombineSum, tokens_, width(h_, s_.topK), {returned, weights_, none_},
           {routed_, none_}, {back}, {summed_});
  }

  void upProjection(EventId here, BufferId upOut, EventId acted) {
    const BufferId low = temp("low", kR, kLowRank), lowUp = temp("low_up", kR, 2 * i_);
    const EventId upDone = done("up_proj", EventSpace::kRows, tilesOf(2 * i_));
    const EventId lowDone = done("low_a", EventSpace::kRows, tilesOf(kLowRank));
    const EventId lowUpDone = done("low_b", EventSpace::kRows, tilesOf(2 * i_));
    const EventId added = done("up_add", EventSpace::kRows);
    family("up_proj", OpKind::kGmm, rows_, product(2 * i_, h_), {rowsX_, up_}, {upOut}, {here}, {upDone});
    family("low_a", OpKind::kGmm, rows_, product(kLowRank, h_), {rowsX_, lowA_}, {low}, {here}, {lowDone});
    family("low_b", OpKind::kGmm, rows_, product(2 * i_, kLowRank, 0, 0.5f), {low, lowB_}, {lowUp}, {lowDone},
           {lowUpDone});
    family("up_add", OpKind::kAdd, rows_, width(2 * i_), {upOut, lowUp}, {gateUp_}, {upDone, lowUpDone},
           {added});
    family("act", OpKind::kActivation, rows_, width(i_), {gateUp_}, {act_}, {added}, {acted});
  }

  void forwardDense() {
    const EventId acted = fused_ ? done("dense_up_act", EventSpace::kTokens, tilesOf(i_))
                                 : done("dense_act", EventSpace::kTokens);
    if (fused_) {
      family("dense_up_act", OpKind::kGmmActivation, tokens_, product(i_, h_, kClampAtTwo), {x_, denseUp_},
             {denseAct_, denseGateUp_}, {}, {acted});
    } else {
      const EventId upDone = done("dense_up", EventSpace::kTokens, tilesOf(2 * i_));
      family("dense_up", OpKind::kGmm, tokens_, product(2 * i_, h_), {x_, denseUp_}, {denseGateUp_}, {},
             {upDone});
      family("dense_act", OpKind::kActivation, tokens_, width(i_, 0, kClampAtTwo), {denseGateUp_},
             {denseAct_}, {upDone}, {acted});
    }
    const BufferId out = temp("dense_out", kT, h_);
    const EventId outDone = done("dense_down", EventSpace::kTokens, tilesOf(h_));
    family("dense_down", OpKind::kGmm, tokens_, product(h_, i_), {denseAct_, denseDown_}, {out}, {acted},
           {outDone});
    const BufferId y = caller("y", DType::kBF16, {kT, fixed(h_)}, Role::kOutput);
    family("y", OpKind::kAdd, tokens_, width(h_), {routed_, out}, {y}, {summed_, outDone}, {});
  }

  // --- backward ------------------------------------------------------------------------------------------

  void backwardRouted() {
    const int64_t e = p_.expertsPerRank();
    const BufferId dy = caller("dy", DType::kBF16, {kT, fixed(h_)}, Role::kInput);
    scaled_ = temp("scaled_dy", kT, h_);
    scaledDone_ = done("scale", EventSpace::kTokens);
    scaledAll_ = allDone("scale");
    family("scale", OpKind::kScale, tokens_, width(h_, 0, 0, 0.5f), {dy}, {scaled_}, {},
           {scaledDone_, scaledAll_});

    const BufferId rowsDy = own("rows_dy", DType::kBF16, kR, h_, Role::kTemp, true);
    const BufferId rowWeights = own("row_weights", DType::kF32, kR, 1, Role::kTemp, true);
    const EventId here = arrived(), back = returned();
    const EventId ofExpert = event("expert_rows", EventSpace::kExperts, ThresholdRule::kRowsOfExpert, 0);
    family("dispatch", OpKind::kDispatch, sends_, width(h_), {scaled_, weights_}, {rowsDy, rowWeights},
           {scaledAll_}, {here, ofExpert});

    const BufferId grad = temp("gate_up_grad", kR, 2 * i_);
    const BufferId rowGrad = own("row_weight_grad", DType::kF32, kR, 1, Role::kTemp);
    const EventId gradDone = done("act_grad", EventSpace::kRows);
    const EventId gradOfExpert =
        event("expert_act_grad", EventSpace::kExperts, ThresholdRule::kSlotsOfExpert, 1);
    BufferId actGrad;
    if (fused_) {
      Tiling whole = width(i_, h_, 4);
      whole.tileN = static_cast<int32_t>(i_);  // one tile: it computes the gradient of the rows' weights
      family("act_grad", OpKind::kGmmActivationGrad, rows_, whole, {rowsDy, down_, gateUp_, rowWeights},
             {grad, rowGrad}, {here}, {gradDone, gradOfExpert});
    } else {
      actGrad = temp("act_grad_y", kR, i_);
      const EventId productDone = done("act_grad_y", EventSpace::kRows, tilesOf(i_));
      family("act_grad_y", OpKind::kGmm, rows_, product(i_, h_, 1), {rowsDy, down_}, {actGrad}, {here},
             {productDone});
      family("act_grad", OpKind::kActivationGrad, rows_, width(i_), {actGrad, gateUp_, rowWeights},
             {grad, rowGrad}, {productDone}, {gradDone, gradOfExpert});
    }
    const BufferId downGrad =
        caller("down_weight_grad", DType::kF32, {fixed(e), fixed(i_), fixed(h_)}, Role::kOutput);
    family("down_weight_grad", OpKind::kGmmWeightGrad, experts_, weightGrad(i_, h_),
           {act_, rowsDy, rowWeights}, {downGrad}, {ofExpert}, {});
    const BufferId upGrad =
        caller("gate_up_weight_grad", DType::kBF16, {fixed(e), fixed(h_), fixed(2 * i_)}, Role::kOutput);
    family("gate_up_weight_grad", OpKind::kGmmWeightGrad, experts_, weightGrad(h_, 2 * i_),
           {rowsX_, grad, none_}, {upGrad}, {gradOfExpert}, {});
    backwardReturn(fused_ ? temp("rows_dx", kR, h_) : sharing(actGrad, "rows_dx", h_), grad, rowGrad,
                   gradDone, back);
  }

  void backwardReturn(BufferId rowsDx, BufferId grad, BufferId rowGrad, EventId gradDone, EventId back) {
    const EventId dxDone = done("gate_grad", EventSpace::kRows, tilesOf(h_));
    family("gate_grad", OpKind::kGmm, rows_, product(h_, 2 * i_, 1), {grad, up_}, {rowsDx}, {gradDone},
           {dxDone});
    const BufferId returned = own("returned_dx", DType::kBF16, kP, h_, Role::kTemp, true);
    const BufferId scalars = own("returned_scalars", DType::kF32, kP, 1, Role::kTemp, true);
    family("combine.return", OpKind::kCombineReturn, returns_, width(h_), {rowsDx, rowGrad},
           {returned, scalars}, {dxDone}, {back});
    routed_ = temp("routed_dx", kT, h_);
    summed_ = done("combine.sum", EventSpace::kTokens);
    const BufferId dWeights = caller("d_expert_weights", DType::kF32, {kT, fixed(s_.topK)}, Role::kOutput);
    family("combine.sum", OpKind::kCombineSum, tokens_, width(h_, s_.topK), {returned, none_, scalars},
           {routed_, dWeights}, {back}, {summed_});
  }

  void backwardDense() {
    const BufferId grad = temp("dense_gate_up_grad", kT, 2 * i_);
    const int32_t tiles = fused_ ? tilesOf(i_) : 1;
    const EventId gradDone = done("dense_act_grad", EventSpace::kTokens, tiles);
    const EventId gradAll = allDone("dense_act_grad", tiles);
    BufferId actGrad;
    if (fused_) {
      family("dense_act_grad", OpKind::kGmmActivationGrad, tokens_, product(i_, h_, kClampAtTwo | 4),
             {scaled_, denseDown_, denseGateUp_, none_}, {grad, none_}, {scaledDone_}, {gradDone, gradAll});
    } else {
      actGrad = temp("dense_act_grad_y", kT, i_);
      const EventId productDone = done("dense_act_grad_y", EventSpace::kTokens, tilesOf(i_));
      family("dense_act_grad_y", OpKind::kGmm, tokens_, product(i_, h_, 1), {scaled_, denseDown_}, {actGrad},
             {scaledDone_}, {productDone});
      family("dense_act_grad", OpKind::kActivationGrad, tokens_, width(i_, 0, kClampAtTwo),
             {actGrad, denseGateUp_, none_}, {grad, none_}, {productDone}, {gradDone, gradAll});
    }
    const BufferId downGrad =
        caller("dense_down_weight_grad", DType::kF32, {fixed(i_), fixed(h_)}, Role::kOutput);
    family("dense_down_weight_grad", OpKind::kGmmWeightGrad, once_, weightGrad(i_, h_),
           {denseAct_, scaled_, none_}, {downGrad}, {scaledAll_}, {});
    const BufferId upGrad =
        caller("dense_up_weight_grad", DType::kBF16, {fixed(h_), fixed(2 * i_)}, Role::kOutput);
    family("dense_up_weight_grad", OpKind::kGmmWeightGrad, once_, weightGrad(h_, 2 * i_, 2.0f),
           {x_, grad, none_}, {upGrad}, {gradAll}, {});
    const BufferId denseDx = fused_ ? temp("dense_dx", kT, h_) : sharing(actGrad, "dense_dx", h_);
    const EventId dxDone = done("dense_dx", EventSpace::kTokens, tilesOf(h_));
    family("dense_dx", OpKind::kGmm, tokens_, product(h_, 2 * i_, 1), {grad, denseUp_}, {denseDx}, {gradDone},
           {dxDone});
    const BufferId dx = caller("dx", DType::kBF16, {kT, fixed(h_)}, Role::kOutput);
    family("dx", OpKind::kAdd, tokens_, width(h_), {routed_, denseDx}, {dx}, {summed_, dxDone}, {});
  }

  const MoeShape s_;
  const int64_t h_, i_;
  const bool fused_;
  TaskProgram p_;
  EntryId entry_;  // to which events and families are added
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

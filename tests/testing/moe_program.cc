#include "tests/testing/moe_program.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

template <class IdType, class T>
IdType append(std::vector<T>& table, T value) {
  table.push_back(std::move(value));
  return IdType{static_cast<uint32_t>(table.size() - 1)};
}

constexpr Dim kT{Extent::kTokens, 0};
constexpr Dim kR{Extent::kRows, 0};
constexpr Dim kP{Extent::kPairs, 0};

Dim fixed(int64_t size) { return {Extent::kFixed, size}; }

// Rows of 64 bytes and more begin on a cache line.
int64_t strideFor(int64_t rowBytes) { return rowBytes < 64 ? rowBytes : (rowBytes + 63) / 64 * 64; }

// Everything a family needs besides its lane, which follows from it.
struct FamilySpec {
  const char* name;
  OpKind op;
  SpaceId space;
  int32_t tiles;
  Tiling tiling;
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;
  std::array<EventId, 2> waits;
  std::array<EventId, 2> signals;
  int32_t priority;
  const char* alias = "";
};

class Builder {
 public:
  explicit Builder(const MoeShape& shape) : s_(shape) {}

  TaskProgram build() {
    header();
    spaces();
    sharedBuffers();
    forward();
    backward();
    return std::move(p_);
  }

 private:
  void header() {
    p_.name = "moe_ffn";
    p_.target = "cpu";
    p_.symbols = {{"hidden", s_.hidden}, {"intermediate", s_.intermediate}};
    p_.ranks = s_.ranks;
    p_.experts = s_.experts;
    p_.topK = s_.topK;
    p_.maxTokens = s_.maxTokens;
    p_.cores = s_.cores;
  }

  void spaces() {
    const auto add = [this](const char* name, SpaceKind kind, int slotSize, int window) {
      return append<SpaceId>(p_.spaces, Space{name, kind, slotSize, window});
    };
    tokens_ = add("tokens", SpaceKind::kTokens, s_.tokenSlot, s_.window);
    rows_ = add("rows", SpaceKind::kRows, s_.slotRows, s_.window);
    sends_ = add("sends", SpaceKind::kSends, s_.slotRows, s_.window);
    returns_ = add("returns", SpaceKind::kReturns, s_.slotRows, s_.window);
    experts_ = add("experts", SpaceKind::kExperts, 1, 1);
  }

  RegionId region(const char* name, Extent extent, int64_t rowBytes, bool symmetric, bool saved) {
    return append<RegionId>(p_.regions, Region{name, extent, strideFor(rowBytes), symmetric, saved});
  }

  BufferId buffer(const char* name, DType type, std::vector<Dim> shape, Role role, RegionId region = {}) {
    return append<BufferId>(p_.buffers, Buffer{name, "", type, std::move(shape), role, region});
  }

  BufferId saved(const char* name, int64_t columns, bool symmetric) {
    const RegionId place = region(name, Extent::kRows, 2 * columns, symmetric, true);
    return buffer(name, DType::kBF16, {kR, fixed(columns)}, Role::kSaved, place);
  }

  void sharedBuffers() {
    const int64_t h = s_.hidden, i = s_.intermediate, k = s_.topK, e = p_.expertsPerRank();
    x_ = buffer("x", DType::kBF16, {kT, fixed(h)}, Role::kInput);
    expertIds_ = buffer("expert_ids", DType::kI32, {kT, fixed(k)}, Role::kInput);
    weights_ = buffer("expert_weights", DType::kF32, {kT, fixed(k)}, Role::kInput);
    gateUpWeight_ = buffer("gate_up_weight", DType::kBF16, {fixed(e), fixed(h), fixed(2 * i)}, Role::kInput);
    downWeight_ = buffer("down_weight", DType::kBF16, {fixed(e), fixed(i), fixed(h)}, Role::kInput);
    rowsX_ = saved("rows_x", h, true);
    gateUp_ = saved("gate_up", 2 * i, false);
    act_ = saved("act", i, false);
    // Shared by buffers of both entries, and in backward by two whose rows follow each other.
    work_ = region("rows_work", Extent::kRows, 2 * std::max(h, i), false, false);
    returned_ = region("returned", Extent::kPairs, 2 * h, true, false);
  }

  EventId event(const char* name, EventSpace space, EventUnit unit, ThresholdRule rule, int64_t factor,
                bool remote) {
    return append<EventId>(p_.events, EventArray{name, entry_, space, unit, rule, factor, remote});
  }
  EventId rowsArrived() {
    return event("rows_arrived", EventSpace::kRows, EventUnit::kRows, ThresholdRule::kRowsOfSlot, 0, true);
  }
  EventId returnedEvent() {
    return event("returned", EventSpace::kOne, EventUnit::kRows, ThresholdRule::kValidPairs, 0, true);
  }
  EventId done(const char* name, int64_t tiles) {
    return event(name, EventSpace::kRows, EventUnit::kTasks, ThresholdRule::kConstant, tiles, false);
  }

  // The family and its lane: task (slot, tile) goes to seat (slot * tiles + tile) mod cores.
  void family(FamilySpec spec) {
    const FamilyId id = append<FamilyId>(
        p_.families, Family{spec.name, spec.alias, "", entry_, spec.op, CoreKind::kUnified, spec.space,
                            spec.tiles, spec.tiling, std::move(spec.reads), std::move(spec.writes)});
    const int64_t window = p_.at(spec.space).window;
    Lane lane{spec.name, entry_, spec.space, CoreKind::kUnified, spec.priority, 0, {}};
    lane.rotation = static_cast<int32_t>(window * spec.tiles % s_.cores);
    lane.seats.resize(s_.cores);
    for (int64_t task = 0; task < window * spec.tiles; ++task) {
      const auto slot = static_cast<uint32_t>(task / spec.tiles);
      const auto tile = static_cast<uint32_t>(task % spec.tiles);
      lane.seats[task % s_.cores].push_back({id, slot, tile, 0, spec.waits, spec.signals});
    }
    p_.lanes.push_back(std::move(lane));
  }

  Tiling columns(int32_t n, int32_t k, bool transposed) const {
    return {0, n, k, 0, s_.tileN, transposed ? 1u : 0u, 0, 0};
  }
  static Tiling width(int32_t n, int32_t k = 0) { return {0, n, k, 0, 0, 0, 0, 0}; }
  Tiling grad(int32_t m, int32_t n) const { return {m, n, 0, s_.tileM, s_.tileN, 0, 0, 0}; }
  int32_t gradTiles(int32_t m, int32_t n) const { return ceilDiv(m, s_.tileM) * ceilDiv(n, s_.tileN); }

  void forward() {
    const int h = s_.hidden, i = s_.intermediate;
    entry_ = append<EntryId>(p_.entries, Entry{"forward", expertIds_, {}});
    const BufferId downOut = buffer("down_out", DType::kBF16, {kR, fixed(h)}, Role::kTemp, work_);
    const BufferId returned =
        buffer("combine.returned", DType::kBF16, {kP, fixed(h)}, Role::kTemp, returned_);
    const BufferId y = buffer("y", DType::kBF16, {kT, fixed(h)}, Role::kOutput);

    const int32_t upTiles = ceilDiv(2 * i, s_.tileN), downTiles = ceilDiv(h, s_.tileN);
    const EventId arrived = rowsArrived();
    const EventId upDone = done("up_proj_done", upTiles);
    const EventId swigluDone = done("swiglu_done", 1);
    const EventId downDone = done("down_proj_done", downTiles);
    const EventId back = returnedEvent();
    const BufferId none;
    family(
        {"dispatch", OpKind::kDispatch, sends_, 1, width(h), {x_, none}, {rowsX_, none}, {}, {arrived}, 0});
    family({"up_proj",
            OpKind::kGmm,
            rows_,
            upTiles,
            columns(2 * i, h, false),
            {rowsX_, gateUpWeight_},
            {gateUp_},
            {arrived},
            {upDone},
            5});
    family({"swiglu", OpKind::kActivation, rows_, 1, width(i), {gateUp_}, {act_}, {upDone}, {swigluDone}, 4});
    family({"down_proj",
            OpKind::kGmm,
            rows_,
            downTiles,
            columns(h, i, false),
            {act_, downWeight_},
            {downOut},
            {swigluDone},
            {downDone},
            3});
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

  struct BackwardBuffers {
    BufferId dy, rowsDy, rowWeights, actGrad, gateUpGrad, rowWeightGrad, rowsDx, returned, returnedScalars;
    BufferId dx, dWeights, gateUpWeightGrad, downWeightGrad;
  };

  BackwardBuffers backwardBuffers() {
    const int64_t h = s_.hidden, i = s_.intermediate, k = s_.topK, e = p_.expertsPerRank();
    const auto rows = [this](const char* name, int64_t n, RegionId where) {
      return buffer(name, DType::kBF16, {kR, fixed(n)}, Role::kTemp, where);
    };
    const RegionId rowsDy = region("rows_dy", Extent::kRows, 2 * h, true, false);
    const RegionId rowWeights = region("row_weights", Extent::kRows, 4, true, false);
    const RegionId gateUpGrad = region("gate_up_grad", Extent::kRows, 4 * i, false, false);
    const RegionId rowWeightGrad = region("row_weight_grad", Extent::kRows, 4, false, false);
    const RegionId returnedScalars = region("returned_scalars", Extent::kPairs, 4, true, false);
    BackwardBuffers b;
    b.dy = buffer("dy", DType::kBF16, {kT, fixed(h)}, Role::kInput);
    b.rowsDy = rows("rows_dy", h, rowsDy);
    b.rowWeights = buffer("row_weights", DType::kF32, {kR}, Role::kTemp, rowWeights);
    b.actGrad = rows("act_grad_y", i, work_);
    b.gateUpGrad = rows("gate_up_grad", 2 * i, gateUpGrad);
    b.rowWeightGrad = buffer("row_weight_grad", DType::kF32, {kR}, Role::kTemp, rowWeightGrad);
    b.rowsDx = rows("rows_dx", h, work_);
    b.returned = buffer("backward.combine.returned", DType::kBF16, {kP, fixed(h)}, Role::kTemp, returned_);
    b.returnedScalars =
        buffer("backward.combine.returned_scalars", DType::kF32, {kP}, Role::kTemp, returnedScalars);
    b.dx = buffer("dx", DType::kBF16, {kT, fixed(h)}, Role::kOutput);
    b.dWeights = buffer("d_expert_weights", DType::kF32, {kT, fixed(k)}, Role::kOutput);
    b.gateUpWeightGrad =
        buffer("gate_up_weight_grad", DType::kF32, {fixed(e), fixed(h), fixed(2 * i)}, Role::kOutput);
    b.downWeightGrad = buffer("down_weight_grad", DType::kF32, {fixed(e), fixed(i), fixed(h)}, Role::kOutput);
    return b;
  }

  void backward() {
    const int h = s_.hidden, i = s_.intermediate;
    entry_ = append<EntryId>(p_.entries, Entry{"backward", {}, EntryId{0}});
    const BackwardBuffers b = backwardBuffers();
    const int32_t actTiles = ceilDiv(i, s_.tileN), gateTiles = ceilDiv(h, s_.tileN);
    const EventId arrived = rowsArrived();
    const EventId expertRows =
        event("expert_rows", EventSpace::kExperts, EventUnit::kRows, ThresholdRule::kRowsOfExpert, 0, true);
    const EventId actDone = done("act_grad_done", actTiles);
    const EventId swigluDone = done("swiglu_grad_done", 1);
    const EventId expertSwiglu = event("expert_swiglu_grad", EventSpace::kExperts, EventUnit::kTasks,
                                       ThresholdRule::kSlotsOfExpert, 1, false);
    const EventId gateDone = done("gate_grad_done", gateTiles);
    const EventId back = returnedEvent();
    const BufferId none;
    family({"dispatch",
            OpKind::kDispatch,
            sends_,
            1,
            width(h),
            {b.dy, weights_},
            {b.rowsDy, b.rowWeights},
            {},
            {arrived, expertRows},
            0});
    family({"act_grad",
            OpKind::kGmm,
            rows_,
            actTiles,
            columns(i, h, true),
            {b.rowsDy, downWeight_},
            {b.actGrad},
            {arrived},
            {actDone},
            5});
    family({"down_weight_grad",
            OpKind::kGmmWeightGrad,
            experts_,
            gradTiles(i, h),
            grad(i, h),
            {act_, b.rowsDy, b.rowWeights},
            {b.downWeightGrad},
            {expertRows},
            {},
            6,
            "w1_grad"});
    family({"swiglu_grad",
            OpKind::kActivationGrad,
            rows_,
            1,
            width(i),
            {b.actGrad, gateUp_, b.rowWeights},
            {b.gateUpGrad, b.rowWeightGrad},
            {actDone},
            {swigluDone, expertSwiglu},
            4});
    family({"gate_grad",
            OpKind::kGmm,
            rows_,
            gateTiles,
            columns(h, 2 * i, true),
            {b.gateUpGrad, gateUpWeight_},
            {b.rowsDx},
            {swigluDone},
            {gateDone},
            3});
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
            {back},
            {},
            2});
    family({"gate_up_weight_grad",
            OpKind::kGmmWeightGrad,
            experts_,
            gradTiles(h, 2 * i),
            grad(h, 2 * i),
            {rowsX_, b.gateUpGrad, none},
            {b.gateUpWeightGrad},
            {expertSwiglu},
            {},
            7,
            "w2_grad"});
  }

  const MoeShape s_;
  TaskProgram p_;
  EntryId entry_;  // to which events and families are added
  SpaceId tokens_, rows_, sends_, returns_, experts_;
  BufferId x_, expertIds_, weights_, gateUpWeight_, downWeight_, rowsX_, gateUp_, act_;
  RegionId work_, returned_;
};

}  // namespace

TaskProgram buildMoeProgram(const MoeShape& shape) { return Builder(shape).build(); }

}  // namespace sluice

#include "tests/testing/wide_program.h"

#include "tests/testing/program_builder.h"

namespace sluice {
namespace {

constexpr float kInputFactor = 1.25f, kAdapterFactor = 0.5f, kSharedFactor = 0.75f;
constexpr BufferId kNone;

class WideBuilder : private ProgramBuilder {
 public:
  explicit WideBuilder(const WideShape& shape)
      : s_(shape), h_(s_.base.hidden), i_(s_.base.intermediate), j_(s_.shared), r_(s_.rank) {}

  TaskProgram build() {
    header();
    inputs();
    savedBuffers();
    beginEntry("forward", expertIds_, {});
    forwardShared();
    forwardRouted();
    beginEntry("backward", {}, EntryId{0});
    backwardInputs();
    backwardShared();
    backwardRouted();
    return std::move(program);
  }

 private:
  void header() {
    program.name = "wide";
    program.target = "cpu";
    program.mesh.ep = s_.base.ranks;
    program.experts = s_.base.experts;
    program.topK = s_.base.topK;
    program.maxTokens = s_.base.maxTokens;
    program.cores = s_.base.cores;
    const int window = s_.base.window;
    tokens_ = space("tokens", SpaceKind::kTokens, s_.base.tokenSlot, window);
    rows_ = space("rows", SpaceKind::kRows, s_.base.slotRows, window);
    sends_ = space("sends", SpaceKind::kSends, s_.base.slotRows, window);
    returns_ = space("returns", SpaceKind::kReturns, s_.base.slotRows, window);
    experts_ = space("experts", SpaceKind::kExperts);
    once_ = space("once", SpaceKind::kOnce);
  }

  BufferId weight(const char* name, int64_t rows, int64_t columns, bool experts, Role role = Role::kInput,
                  DType type = DType::kBF16) {
    std::vector<Dim> shape{fixedDim(rows), fixedDim(columns)};
    if (experts) shape.insert(shape.begin(), program.expertDim());
    return buffer(name, type, std::move(shape), role);
  }
  // Caller's tensors of tokens, and buffers of tokens or rows in regions of their own.
  BufferId caller(const char* name, DType type, int64_t columns, Role role) {
    return buffer(name, type, {kDimT, fixedDim(columns)}, role);
  }
  BufferId of(Dim extent, const char* name, int64_t columns, Role role = Role::kTemp, bool remote = false) {
    return own(name, DType::kBF16, {extent, fixedDim(columns)}, role, remote);
  }

  void inputs() {
    x_ = caller("x", DType::kBF16, h_, Role::kInput);
    expertIds_ = caller("expert_ids", DType::kI32, s_.base.topK, Role::kInput);
    weights_ = caller("expert_weights", DType::kF32, s_.base.topK, Role::kInput);
    w_ = weight("gate_up_weight", h_, 2 * i_, true);
    a_ = weight("lora_a", h_, r_, true);
    b_ = weight("lora_b", r_, 2 * i_, true);
    d_ = weight("down_weight", i_, h_, true);
    sw_ = weight("shared_gate_up_weight", h_, 2 * j_, false);
    sd_ = weight("shared_down_weight", j_, h_, false);
  }

  void savedBuffers() {
    rowsX_ = of(kDimR, "rows_x", h_, Role::kSaved, true);
    adapted_ = of(kDimR, "adapted", r_, Role::kSaved);
    gateUp_ = of(kDimR, "gate_up", 2 * i_, Role::kSaved);
    sharedGateUp_ = of(kDimT, "shared_gate_up", 2 * j_, Role::kSaved);
    sharedAct_ = of(kDimT, "shared_act", j_, Role::kSaved);
  }

  // --- Families. `extra` is a second event to signal.

  bool inRows(SpaceId space) const { return space == rows_; }
  EventSpace eventsOf(SpaceId space) const { return inRows(space) ? EventSpace::kRows : EventSpace::kTokens; }
  int32_t countTiles(int32_t n) const { return ceilDiv(n, s_.base.tileN); }

  EventId one(SpaceId space, const char* name, OpKind op, int32_t n, float alpha, ActivationKind activation,
              std::vector<BufferId> reads, std::vector<BufferId> writes, std::array<EventId, 2> waits,
              int32_t priority, EventId extra = {}) {
    const EventId finished = done(name, eventsOf(space), 1);
    family({name,
            op,
            space,
            1,
            {.n = n, .alpha = alpha, .activation = activation},
            std::move(reads),
            std::move(writes),
            waits,
            {finished, extra},
            priority});
    return finished;
  }

  EventId gmm(SpaceId space, const char* name, BufferId a, BufferId b, BufferId c, int32_t n, int32_t k,
              bool transposed, float alpha, EventId wait, int32_t priority, EventId extra = {}) {
    const EventId finished = done(name, eventsOf(space), countTiles(n));
    const uint16_t flags = transposed ? 1 : 0;
    family({name,
            OpKind::kGmm,
            space,
            countTiles(n),
            {.n = n, .k = k, .tileN = s_.base.tileN, .flags = flags, .alpha = alpha},
            {a, b},
            {c},
            {wait, EventId{}},
            {finished, extra},
            priority});
    return finished;
  }

  void weightGrad(SpaceId space, const char* name, BufferId a, BufferId b, int32_t m, int32_t n, DType type,
                  float alpha, EventId wait) {
    const BufferId grad = weight(name, m, n, space == experts_, Role::kOutput, type);
    const uint16_t flags = s_.accumulate ? 1 : 0;
    const int32_t tiles = ceilDiv(m, s_.base.tileM) * countTiles(n);
    family({name,
            OpKind::kGmmWeightGrad,
            space,
            tiles,
            {.m = m, .n = n, .tileM = s_.base.tileM, .tileN = s_.base.tileN, .flags = flags, .alpha = alpha},
            {a, b, kNone},
            {grad},
            {wait, EventId{}},
            {},
            20});
  }

  void forwardShared() {
    const ActivationKind geglu = ActivationKind::kGeglu;
    EventId acted;
    if (s_.base.fused) {
      acted = done("shared_up", EventSpace::kTokens, countTiles(j_));
      family({"shared_up",
              OpKind::kGmmActivation,
              tokens_,
              countTiles(j_),
              {.n = j_, .k = h_, .tileN = s_.base.tileN, .alpha = kSharedFactor, .activation = geglu},
              {x_, sw_},
              {sharedAct_, sharedGateUp_},
              {},
              {acted},
              12});
    } else {
      const EventId up =
          gmm(tokens_, "shared_up", x_, sw_, sharedGateUp_, 2 * j_, h_, false, kSharedFactor, {}, 12);
      acted = one(tokens_, "shared_act", OpKind::kActivation, j_, 0, geglu, {sharedGateUp_}, {sharedAct_},
                  {up}, 11);
    }
    sharedOut_ = of(kDimT, "shared_out", h_);
    sharedDone_ = gmm(tokens_, "shared_down", sharedAct_, sd_, sharedOut_, h_, j_, false, 0, acted, 10);
  }

  void forwardRouted() {
    const BufferId xs = of(kDimT, "xs", h_), base = of(kDimR, "base", 2 * i_);
    const BufferId low = of(kDimR, "low", 2 * i_), scaled = of(kDimR, "scaled", 2 * i_);
    const BufferId act = of(kDimR, "act", i_), out = of(kDimR, "down_out", h_);
    const BufferId routed = of(kDimT, "routed", h_), y = caller("y", DType::kBF16, h_, Role::kOutput);
    const EventId all = allTokens("xs_all", 1);
    family({"xs", OpKind::kScale, tokens_, 1, {.n = h_, .alpha = kInputFactor}, {x_}, {xs}, {}, {all}, 0});
    const EventId arrived = rowsArrived();
    family({"dispatch",
            OpKind::kDispatch,
            sends_,
            1,
            {.n = h_},
            {xs, kNone},
            {rowsX_, kNone},
            {all},
            {arrived},
            1});
    const EventId based = gmm(rows_, "base", rowsX_, w_, base, 2 * i_, h_, false, 0, arrived, 9);
    const EventId down = gmm(rows_, "adapt", rowsX_, a_, adapted_, r_, h_, false, 0, arrived, 8);
    const EventId up = gmm(rows_, "low", adapted_, b_, low, 2 * i_, r_, false, 0, down, 7);
    const EventId scaledDone =
        one(rows_, "scaled", OpKind::kScale, 2 * i_, kAdapterFactor, {}, {low}, {scaled}, {up}, 6);
    const EventId added =
        one(rows_, "gate_up", OpKind::kAdd, 2 * i_, 0, {}, {base, scaled}, {gateUp_}, {based, scaledDone}, 6);
    const EventId acted = one(rows_, "swiglu", OpKind::kActivation, i_, 0, {}, {gateUp_}, {act}, {added}, 5);
    const EventId outDone = gmm(rows_, "down_proj", act, d_, out, h_, i_, false, 0, acted, 4);
    const EventId routedDone = combine(out, kNone, outDone, weights_, routed, kNone);
    family({"y",
            OpKind::kAdd,
            tokens_,
            1,
            {.n = h_},
            {routed, sharedOut_},
            {y},
            {routedDone, sharedDone_},
            {},
            3});
  }

  // Returns rows (and a scalar of each), and sums them by token.
  EventId combine(BufferId rows, BufferId scalars, EventId wait, BufferId weights, BufferId tokens,
                  BufferId tokenScalars) {
    const bool first = scalars.none();
    const BufferId back = of(kDimP, first ? "returned" : "returned_grad", h_, Role::kTemp, true);
    BufferId backScalars;
    if (!first) backScalars = own("returned_scalars", DType::kF32, {kDimP}, Role::kTemp, true);
    const EventId arrived = allReturned();
    family({"combine.return",
            OpKind::kCombineReturn,
            returns_,
            1,
            {.n = h_},
            {rows, scalars},
            {back, backScalars},
            {wait},
            {arrived},
            1});
    const EventId summed = done("combined", EventSpace::kTokens, 1);
    family({"combine.sum",
            OpKind::kCombineSum,
            tokens_,
            1,
            {.n = h_, .k = s_.base.topK},
            {back, weights, backScalars},
            {tokens, tokenScalars},
            {arrived},
            {summed},
            2});
    return summed;
  }

  void backwardInputs() { dy_ = caller("dy", DType::kBF16, h_, Role::kInput); }

  void backwardShared() {
    const ActivationKind geglu = ActivationKind::kGeglu;
    const BufferId grad = of(kDimT, "shared_gate_up_grad", 2 * j_);
    sharedDx_ = of(kDimT, "shared_dx", h_);
    const EventId all = allTokens("shared_grads", s_.base.fused ? countTiles(j_) : 1);
    EventId finished;
    if (s_.base.fused) {
      finished = done("shared_act_grad", EventSpace::kTokens, countTiles(j_));
      family({"shared_act_grad",
              OpKind::kGmmActivationGrad,
              tokens_,
              countTiles(j_),
              {.n = j_, .k = h_, .tileN = s_.base.tileN, .flags = 4, .activation = geglu},
              {dy_, sd_, sharedGateUp_, kNone},
              {grad, kNone},
              {},
              {finished, all},
              12});
    } else {
      const BufferId actGrad = of(kDimT, "shared_act_grad", j_);
      const EventId back = gmm(tokens_, "shared_act_grad", dy_, sd_, actGrad, j_, h_, true, 0, {}, 12);
      finished = one(tokens_, "shared_swiglu_grad", OpKind::kActivationGrad, j_, 0, geglu,
                     {actGrad, sharedGateUp_, kNone}, {grad, kNone}, {back}, 11, all);
    }
    sharedDone_ =
        gmm(tokens_, "shared_dx", grad, sw_, sharedDx_, h_, 2 * j_, true, kSharedFactor, finished, 10);
    weightGrad(once_, "shared_down_grad", sharedAct_, dy_, j_, h_, DType::kF32, 0, {});
    weightGrad(once_, "shared_gate_up_grad_out", x_, grad, h_, 2 * j_, DType::kBF16, kSharedFactor, all);
  }

  void backwardRouted() {
    const BufferId rowsDy = of(kDimR, "rows_dy", h_, Role::kTemp, true);
    const BufferId rowWeights = own("row_weights", DType::kF32, {kDimR}, Role::kTemp, true);
    const BufferId rowWeightGrad = own("row_weight_grad", DType::kF32, {kDimR}, Role::kTemp);
    const BufferId actGrad = of(kDimR, "act_grad", i_), grad = of(kDimR, "gate_up_grad", 2 * i_);
    const BufferId scaled = of(kDimR, "scaled_grad", 2 * i_), low = of(kDimR, "adapted_grad", r_);
    const BufferId base = of(kDimR, "base_dx", h_), adapted = of(kDimR, "adapted_dx", h_);
    const BufferId rowsDx = of(kDimR, "rows_dx", h_), routed = of(kDimT, "routed_dx", h_);
    const BufferId routedDx = of(kDimT, "routed_dx_scaled", h_);
    const BufferId dx = caller("dx", DType::kBF16, h_, Role::kOutput);
    const BufferId dWeights = caller("d_expert_weights", DType::kF32, s_.base.topK, Role::kOutput);
    const EventId arrived = rowsArrived();
    family({"dispatch",
            OpKind::kDispatch,
            sends_,
            1,
            {.n = h_},
            {dy_, weights_},
            {rowsDy, rowWeights},
            {},
            {arrived},
            0});
    const EventId actDone = gmm(rows_, "act_grad", rowsDy, d_, actGrad, i_, h_, true, 0, arrived, 9);
    const EventId expertGrad = expertDone("expert_grad", 1),
                  expertLow = expertDone("expert_low", countTiles(r_));
    const EventId gradDone =
        one(rows_, "swiglu_grad", OpKind::kActivationGrad, i_, 0, {}, {actGrad, gateUp_, rowWeights},
            {grad, rowWeightGrad}, {actDone}, 8, expertGrad);
    const EventId scaledDone = one(rows_, "scaled_grad", OpKind::kScale, 2 * i_, kAdapterFactor, {}, {grad},
                                   {scaled}, {gradDone}, 7);
    const EventId lowDone =
        gmm(rows_, "adapted_grad", scaled, b_, low, r_, 2 * i_, true, 0, scaledDone, 6, expertLow);
    const EventId baseDone = gmm(rows_, "base_dx", grad, w_, base, h_, 2 * i_, true, 0, gradDone, 5);
    const EventId adaptedDone = gmm(rows_, "adapted_dx", low, a_, adapted, h_, r_, true, 0, lowDone, 5);
    const EventId dxDone =
        one(rows_, "rows_dx", OpKind::kAdd, h_, 0, {}, {base, adapted}, {rowsDx}, {baseDone, adaptedDone}, 4);
    const EventId summed = combine(rowsDx, rowWeightGrad, dxDone, kNone, routed, dWeights);
    const EventId scaledDx =
        one(tokens_, "routed_dx", OpKind::kScale, h_, kInputFactor, {}, {routed}, {routedDx}, {summed}, 3);
    family({"dx",
            OpKind::kAdd,
            tokens_,
            1,
            {.n = h_},
            {routedDx, sharedDx_},
            {dx},
            {scaledDx, sharedDone_},
            {},
            3});
    weightGrad(experts_, "lora_b_grad", adapted_, grad, r_, 2 * i_, DType::kBF16, kAdapterFactor, expertGrad);
    weightGrad(experts_, "lora_a_grad", rowsX_, low, h_, r_, DType::kF32, 0, expertLow);
  }

  const WideShape s_;
  const int h_, i_, j_, r_;
  SpaceId tokens_, rows_, sends_, returns_, experts_, once_;
  BufferId x_, expertIds_, weights_, w_, a_, b_, d_, sw_, sd_, dy_;
  BufferId rowsX_, adapted_, gateUp_, sharedGateUp_, sharedAct_, sharedOut_, sharedDx_;
  EventId sharedDone_;  // of what the shared branch adds
};

}  // namespace

TaskProgram buildWideProgram(const WideShape& shape) { return WideBuilder(shape).build(); }

}  // namespace sluice

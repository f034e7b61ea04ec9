#include "tests/testing/linear_program.h"

#include <algorithm>
#include <utility>

#include "runtime/program/op_table.h"
#include "runtime/program/sharding.h"
#include "tests/testing/program_builder.h"

namespace sluice {
namespace {

class Builder : private ProgramBuilder {
 public:
  explicit Builder(const LinearShape& shape) : s_(shape) {}

  TaskProgram build() {
    header();
    s_.column ? column() : row();
    for (Family& family : program.families) trimOperands(family);
    if (s_.ranks > 1) shard();
    return std::move(program);
  }

 private:
  void header() {
    program.name = s_.column ? "column_parallel" : "row_parallel";
    program.target = "cpu";
    program.mesh = {1, s_.ranks, s_.sameTokens ? TokenHolders::kSame : TokenHolders::kOwn};
    program.experts = program.topK = 1;
    program.maxTokens = s_.maxTokens;
    program.cores = s_.cores;
    tokens_ = space("tokens", SpaceKind::kTokens, s_.tokenSlot, s_.window);
    rows_ = space("rows", SpaceKind::kRows, s_.slotRows, s_.window);
    sends_ = space("sends", SpaceKind::kSends, s_.slotRows, s_.window);
    returns_ = space("returns", SpaceKind::kReturns, s_.slotRows, s_.window);
    experts_ = space("experts", SpaceKind::kExperts);
    if (!s_.column) once_ = space("once", SpaceKind::kOnce);
    const auto columns = fixedDim(s_.out);
    x_ = buffer("x", DType::kBF16, {s_.column ? kDimT : kDimR, fixedDim(s_.in)}, Role::kInput);
    weight_ = buffer("weight", DType::kBF16, {fixedDim(1), fixedDim(s_.in), columns}, Role::kInput);
    bias_ = s_.column ? buffer("bias", DType::kBF16, {fixedDim(1), columns}, Role::kInput)
                      : buffer("bias", DType::kBF16, {columns}, Role::kInput);
  }

  // What the layer shares; families stand after those that write what they read.
  void shard() {
    const Sharding columns = Sharding::kColumns;
    const auto set = [&](BufferId id, Sharding sharding) { program.buffers[id.value].sharding = sharding; };
    set(weight_, s_.column ? columns : Sharding::kRows);
    set(s_.column ? bias_ : x_, columns);
    if (s_.column) set(dy_, columns);
    for (const Family& family : program.families) {
      const std::vector<Sharding> written = *deriveShardings(program, family);
      for (size_t i = 0; i < std::min(written.size(), family.writes.size()); ++i)
        if (family.writes[i]) set(family.writes[i], written[i]);
    }
  }

  Tiling product(int32_t n, int32_t k, bool transposed) const {
    return {.n = n, .k = k, .tileN = s_.tileN, .flags = uint16_t{transposed}};
  }
  static Tiling width(int32_t n, int32_t k = 0) { return {.n = n, .k = k}; }
  int32_t tiles(int32_t n) const { return ceilDiv(n, s_.tileN); }

  BufferId bf16(const char* name, Dim first, int32_t columns, Role role) {
    return buffer(name, DType::kBF16, {first, fixedDim(columns)}, role);
  }
  BufferId rowsOf(const char* name, int32_t columns, Role role, bool symmetric = false) {
    return own(name, DType::kBF16, {kDimR, fixedDim(columns)}, role, symmetric);
  }

  // The way of `rows` [R,n] back to the tokens, after `done`.
  void combine(BufferId rows, int32_t n, EventId done, BufferId bias, BufferId sum,
               const char* returnedName) {
    const BufferId none;
    const EventId back = allReturned();
    const BufferId returned = own(returnedName, DType::kBF16, {kDimP, fixedDim(n)}, Role::kTemp, true);
    family({"combine.return",
            OpKind::kCombineReturn,
            returns_,
            1,
            width(n),
            {rows, none},
            {returned, none},
            {done},
            {back},
            1});
    family({"combine.sum",
            OpKind::kCombineSum,
            tokens_,
            1,
            width(n, 1),
            {returned, none, none, bias},
            {sum, none},
            {back},
            {},
            2});
  }

  void weightGrad(BufferId a, BufferId b, EventId ready) {
    const BufferId grad =
        buffer("weight_grad", DType::kF32, {fixedDim(1), fixedDim(s_.in), fixedDim(s_.out)}, Role::kOutput);
    family({"weight_grad",
            OpKind::kGmmWeightGrad,
            experts_,
            ceilDiv(s_.in, s_.tileM) * tiles(s_.out),
            {.m = s_.in, .n = s_.out, .tileM = s_.tileM, .tileN = s_.tileN},
            {a, b, {}},
            {grad},
            {ready},
            {},
            5});
  }

  void column() {
    const BufferId none;
    beginEntry("forward", {}, {});
    const BufferId rowsX = rowsOf("rows_x", s_.in, Role::kSaved, true);
    const BufferId y = rowsOf("y", s_.out, Role::kOutput);
    const EventId arrived = rowsArrived();
    family({"dispatch",
            OpKind::kDispatch,
            sends_,
            1,
            width(s_.in),
            {x_, none},
            {rowsX, none},
            {},
            {arrived},
            0});
    family({"product",
            OpKind::kGmm,
            rows_,
            tiles(s_.out),
            product(s_.out, s_.in, false),
            {rowsX, weight_, bias_},
            {y},
            {arrived},
            {},
            3});

    beginEntry("backward", {}, EntryId{0});
    dy_ = bf16("dy", kDimR, s_.out, Role::kInput);
    const BufferId rowsDx = rowsOf("rows_dx", s_.in, Role::kTemp);
    const BufferId dx = bf16("dx", kDimT, s_.in, Role::kOutput);
    const EventId dxDone = done("dx_done", EventSpace::kRows, tiles(s_.in));
    family({"x_grad",
            OpKind::kGmm,
            rows_,
            tiles(s_.in),
            product(s_.in, s_.out, true),
            {dy_, weight_},
            {rowsDx},
            {},
            {dxDone},
            3});
    combine(rowsDx, s_.in, dxDone, none, dx, "returned_dx");
    weightGrad(rowsX, dy_, {});
    const BufferId biasGrad =
        buffer("bias_grad", DType::kF32, {fixedDim(1), fixedDim(s_.out)}, Role::kOutput);
    family({"bias_grad",
            OpKind::kColumnSum,
            experts_,
            tiles(s_.out),
            {.n = s_.out, .tileN = s_.tileN},
            {dy_, none},
            {biasGrad},
            {},
            {},
            6});
    const BufferId dots = own("dots", DType::kF32, {kDimR}, Role::kOutput);
    family({"dots", OpKind::kRowDot, rows_, 1, width(s_.out), {dy_, bias_, none}, {dots}, {}, {}, 4});
  }

  void row() {
    const BufferId none;
    beginEntry("forward", {}, {});
    const BufferId terms = rowsOf("terms", s_.out, Role::kTemp);
    const BufferId y = bf16("y", kDimT, s_.out, Role::kOutput);
    const EventId productDone = done("product_done", EventSpace::kRows, tiles(s_.out));
    family({"product",
            OpKind::kGmm,
            rows_,
            tiles(s_.out),
            product(s_.out, s_.in, false),
            {x_, weight_},
            {terms},
            {},
            {productDone},
            3});
    combine(terms, s_.out, productDone, bias_, y, "returned_y");

    beginEntry("backward", {}, EntryId{0});
    dy_ = bf16("dy", kDimT, s_.out, Role::kInput);
    const BufferId rowsDy = rowsOf("rows_dy", s_.out, Role::kTemp, true);
    const BufferId dx = rowsOf("dx", s_.in, Role::kOutput);
    const EventId arrived = rowsArrived(), ofExpert = expertRows();
    family({"dispatch",
            OpKind::kDispatch,
            sends_,
            1,
            width(s_.out),
            {dy_, none},
            {rowsDy, none},
            {},
            {arrived, ofExpert},
            0});
    family({"x_grad",
            OpKind::kGmm,
            rows_,
            tiles(s_.in),
            product(s_.in, s_.out, true),
            {rowsDy, weight_},
            {dx},
            {arrived},
            {},
            3});
    weightGrad(x_, rowsDy, ofExpert);
    const BufferId biasGrad = buffer("bias_grad", DType::kF32, {fixedDim(s_.out)}, Role::kOutput);
    family({"bias_grad",
            OpKind::kColumnSum,
            once_,
            tiles(s_.out),
            {.n = s_.out, .tileN = s_.tileN},
            {dy_, none},
            {biasGrad},
            {},
            {},
            6});
  }

  const LinearShape s_;
  SpaceId tokens_, rows_, sends_, returns_, experts_, once_;
  BufferId x_, weight_, bias_, dy_;
};

}  // namespace

TaskProgram buildLinearProgram(const LinearShape& shape) { return Builder(shape).build(); }

}  // namespace sluice

// Layers whose experts the ranks do not divide: every executor gives the bits of one rank that has all
// experts, and what double precision computes, also where ranks own no expert, have no tokens or receive no
// rows.
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "tests/testing/faulty_transport.h"
#include "tests/testing/packed_regions.h"
#include "tests/testing/program_builder.h"
#include "tests/testing/small_layer.h"
#include "tests/testing/wide_program.h"

namespace sluice {
namespace {

// Ranks and experts: each with other remainders, and with ranks that own none.
constexpr std::pair<int, int> kWorlds[] = {{2, 5}, {3, 5}, {4, 5}, {4, 7}, {3, 2}, {4, 1}};

MoeShape unevenShape(int ranks, int experts) {
  MoeShape shape = smallShape(ranks);
  shape.experts = experts;
  shape.topK = std::min(experts, 2);
  shape.cores = 3;
  return shape;
}

// What belongs to no rank but to all: tensors that follow each other by rank, as of one rank that has it all.
tools::TensorMap joined(const std::vector<tools::TensorMap>& ranks) {
  tools::TensorMap all;
  for (const auto& [name, first] : ranks.front()) {
    std::vector<int64_t> shape = first.shape();
    shape[0] = 0;
    for (const tools::TensorMap& rank : ranks) shape[0] += rank.at(name).shape()[0];
    tools::Tensor tensor(first.type(), shape);
    int64_t at = 0;
    for (const tools::TensorMap& rank : ranks) {
      const tools::Tensor& part = rank.at(name);
      if (part.bytes() > 0) std::memcpy(tensor.data() + at, part.data(), static_cast<size_t>(part.bytes()));
      at += part.bytes();
    }
    all.emplace(name, std::move(tensor));
  }
  return all;
}

bool sameBits(const tools::TensorMap& a, const tools::TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const tools::Tensor& other = b.at(name);
    if (tensor.shape() != other.shape()) return false;
    if (tensor.bytes() > 0 && std::memcmp(tensor.data(), other.data(), tensor.bytes()) != 0) return false;
  }
  return true;
}

// The same layer with the same tokens at one rank.
tools::TensorMap atOneRank(MoeShape shape, const LayerData& data) {
  shape.maxTokens *= shape.ranks;
  shape.ranks = 1;
  LayerData one;
  one.tokens = {std::accumulate(data.tokens.begin(), data.tokens.end(), int64_t{0})};
  one.inputs.push_back(joined(data.inputs));
  one.outputs.push_back(joined(data.outputs));
  const Status ran = runLayer(programOf(buildMoeProgram(shape)), kSerial, one);
  REQUIRE((ran ? "" : ran.error().message) == "");
  return std::move(one.outputs[0]);
}

TEST_CASE("experts that ranks do not divide give the bits of one rank that owns them all, on any executor") {
  for (const auto& [ranks, experts] : kWorlds) {
    const MoeShape plain = unevenShape(ranks, experts);
    std::vector<MoeShape> shapes(3, plain);
    shapes[1].fused = true;
    shapes[2].groupSlots = 2;
    std::vector<Program> programs;
    for (const MoeShape& shape : shapes) programs.push_back(programOf(buildMoeProgram(shape)));
    for (const Sample& sample : samplesOf(ranks)) {
      const tools::TensorMap whole = atOneRank(plain, dataFor(programs[0], sample));
      for (const Program& program : programs) {
        INFO(experts << " experts, " << ranks << " ranks, sample " << sample.seed);
        CHECK(sameBits(joined(runOn(program, sample, kSerial).outputs), whole));
        for (const int threads : {1, 2, 3})
          CHECK(sameBits(joined(runOn(program, sample, {.threads = threads}).outputs), whole));
      }
    }
  }
}

TEST_CASE("every output of uneven experts agrees with double precision, with dense families beside them") {
  for (const auto& [ranks, experts] : kWorlds)
    for (const bool fused : {false, true}) {
      MoeShape shape = unevenShape(ranks, experts);
      shape.fused = fused;
      const TaskProgram tables = buildWideProgram({.base = shape, .accumulate = fused});
      const Program program = programOf(tables), packed = programOf(packRegions(tables));
      for (const Sample& sample : samplesOf(ranks)) {
        const LayerData before = dataFor(program, sample);
        const LayerData after = runOn(program, sample, {.threads = 2});
        CHECK(hashOutputs(runOn(program, sample, kSerial)) == hashOutputs(after));
        CHECK(hashOutputs(runOn(packed, sample, {.threads = 3})) == hashOutputs(after));
        for (const auto& [name, error] : errorsOfProgram(program.verified(), before, after, kBoth, false)) {
          INFO(experts << " experts, " << ranks << " ranks, sample " << sample.seed << ", " << name);
          CHECK(error <= 1.5e-2);
        }
      }
    }
}

TEST_CASE("the formulas of the layer know who owns which expert") {
  for (const auto& [ranks, experts] : kWorlds) {
    const Program program = programOf(buildMoeProgram(unevenShape(ranks, experts)));
    LayerData data = makeLayerData(program.tables(), {.tokens = {.most = 60}, .seed = 3});
    const Status ran = runLayer(program, {.threads = 2}, data);
    REQUIRE((ran ? "" : ran.error().message) == "");
    for (const tools::OutputError& error : errorsOf(data)) {
      INFO(experts << " experts, " << ranks << " ranks, " << error.name << ": " << error.relative);
      CHECK(error.relative <= 1.2e-2);
    }
  }
}

TEST_CASE("steps of other sizes follow each other, with memory that other ranks cannot write to directly") {
  const Program program = programOf(buildMoeProgram(unevenShape(3, 5)));
  std::vector<std::unique_ptr<FaultyTransport>> wrapped(3);
  const auto hide = [&](int rank, Transport& real) -> Transport& {
    wrapped[rank] =
        std::make_unique<FaultyTransport>(real, [](int, SymmetricHandle, size_t, uint64_t) { return true; });
    wrapped[rank]->hideMemory();
    return *wrapped[rank];
  };
  std::vector<LayerData> steps;
  std::vector<uint64_t> expected;
  for (const Sample& sample : samplesOf(3)) {
    steps.push_back(dataFor(program, sample));
    expected.push_back(hashOutputs(runOn(program, sample, kSerial)));
  }
  const auto body = [&](int rank, Context& context) -> Status {
    for (LayerData& step : steps) {
      if (Status bound = bindAll(step, rank, context); !bound) return bound;
      for (const std::string& entry : kBoth)
        if (Status ran = context.run(entry); !ran) return ran;
    }
    return {};
  };
  for (const Status& result : runRanks(program, {.threads = 2}, body, hide)) {
    INFO((result ? "" : result.error().message));
    REQUIRE(result.ok());
  }
  for (size_t step = 0; step < steps.size(); ++step) CHECK(hashOutputs(steps[step]) == expected[step]);
}

TEST_CASE("a tensor of experts has as many as the rank that binds it owns") {
  const Program program = programOf(buildMoeProgram(unevenShape(2, 5)));
  LayerData data = dataFor(program, {{4, 4}, DataRouting::kUniform, 1});
  const auto bindOther = [&](int rank, Context& context) {
    return context.bind("down_weight", viewTensor(data.inputs[1 - rank].at("down_weight")));
  };
  const std::vector<Status> results = runRanks(program, {.threads = 1}, bindOther);
  REQUIRE_FALSE(results[0].ok());
  REQUIRE_FALSE(results[1].ok());
  CHECK(results[0].error().message ==
        "tensor 'down_weight' has shape [2, 28, 40], expected [3, 28, 40] at rank 0");
  CHECK(results[1].error().message ==
        "tensor 'down_weight' has shape [3, 28, 40], expected [2, 28, 40] at rank 1");
}

// Entry `first` makes a matrix of each expert, x' x over its rows, which `second` takes as its weight.
TaskProgram keptWeightProgram(int ranks, int experts) {
  constexpr int kWidth = 24;
  ProgramBuilder b;
  TaskProgram& p = b.program;
  p.name = "kept_weight";
  p.mesh.ep = ranks;
  p.experts = experts;
  p.topK = 1;
  p.maxTokens = 50;
  p.cores = 2;
  const SpaceId tokens = b.space("tokens", SpaceKind::kTokens, 16, 2);
  const SpaceId rows = b.space("rows", SpaceKind::kRows, 16, 2),
                sends = b.space("sends", SpaceKind::kSends, 16);
  const SpaceId returns = b.space("returns", SpaceKind::kReturns, 16),
                each = b.space("experts", SpaceKind::kExperts);
  const BufferId x = b.buffer("x", DType::kBF16, {kDimT, fixedDim(kWidth)}, Role::kInput);
  const BufferId ids = b.buffer("expert_ids", DType::kI32, {kDimT, fixedDim(1)}, Role::kInput);
  const BufferId rowsX = b.own("rows_x", DType::kBF16, {kDimR, fixedDim(kWidth)}, Role::kSaved, true);
  const Dim axis = p.expertDim();
  const int64_t bytes = 2 * kWidth * kWidth * (axis.extent == Extent::kFixed ? axis.size : 1);
  const RegionId kept = b.region("kept", axis.extent, bytes, false, true);
  const BufferId weight =
      b.buffer("kept", DType::kBF16, {axis, fixedDim(kWidth), fixedDim(kWidth)}, Role::kSaved, kept);
  const BufferId out = b.own("out", DType::kBF16, {kDimR, fixedDim(kWidth)}, Role::kTemp);
  const BufferId returned = b.own("returned", DType::kBF16, {kDimP, fixedDim(kWidth)}, Role::kTemp, true);
  const BufferId y = b.buffer("y", DType::kBF16, {kDimT, fixedDim(kWidth)}, Role::kOutput);
  const auto add = [&](const char* name, OpKind op, SpaceId space, Tiling tiling, std::vector<BufferId> reads,
                       std::vector<BufferId> writes, EventId wait, EventId signal) {
    b.family({.name = name,
              .op = op,
              .space = space,
              .tiles = 1,
              .tiling = tiling,
              .reads = std::move(reads),
              .writes = std::move(writes),
              .waits = {wait, EventId{}},
              .signals = {signal, EventId{}},
              .priority = static_cast<int32_t>(p.lanes.size())});
  };
  const BufferId none;
  b.beginEntry("first", ids, {});
  const EventId arrived = b.expertRows();
  add("dispatch", OpKind::kDispatch, sends, {.n = kWidth}, {x, none}, {rowsX, none}, {}, arrived);
  add("gram", OpKind::kGmmWeightGrad, each,
      {.m = kWidth, .n = kWidth, .tileM = kWidth, .tileN = kWidth, .alpha = 0.05f}, {rowsX, rowsX, none},
      {weight}, arrived, {});
  b.beginEntry("second", {}, EntryId{0});
  const EventId made = b.done("product", EventSpace::kRows, 1), back = b.allReturned();
  add("product", OpKind::kGmm, rows, {.n = kWidth, .k = kWidth, .tileN = kWidth}, {rowsX, weight}, {out}, {},
      made);
  add("combine.return", OpKind::kCombineReturn, returns, {.n = kWidth}, {out, none}, {returned, none}, made,
      back);
  add("combine.sum", OpKind::kCombineSum, tokens, {.n = kWidth, .k = 1}, {returned, none, none}, {y, none},
      back, {});
  return std::move(p);
}

TEST_CASE("weights of experts that a program makes lie apart, be their number fixed or that of the rank") {
  for (const auto& [ranks, experts] : {std::pair{1, 4}, {2, 6}, {2, 5}, {3, 2}}) {
    INFO(experts << " experts, " << ranks << " ranks");
    const Program program = programOf(keptWeightProgram(ranks, experts));
    const Sample sample{{std::vector<int64_t>(static_cast<size_t>(ranks), 45)}, DataRouting::kUniform, 5};
    const LayerData before = dataFor(program, sample);
    const LayerData after = runOn(program, sample, {.threads = 2}, {"first", "second"});
    const auto errors = errorsOfProgram(program.verified(), before, after, {"first", "second"}, false);
    REQUIRE(errors.contains("y"));
    CHECK(errors.at("y") <= 1.2e-2);
  }
}

}  // namespace
}  // namespace sluice

// Families that the plain layer does not have: dense ones, sums and factors, low-rank adapters, gradients in
// bf16, and fused ones. They are verified, run by both executors with any number of threads, and compared
// with double precision.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "runtime/abi/kernels.h"
#include "runtime/api/context.h"
#include "runtime/program/words.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/packed_regions.h"
#include "tests/testing/program_builder.h"
#include "tests/testing/small_layer.h"
#include "tests/testing/wide_program.h"

namespace sluice {
namespace {

uint64_t hashOn(const Program& program, const Sample& sample, const ContextOptions& options,
                const std::vector<std::string>& entries = kBoth) {
  return hashOutputs(runOn(program, sample, options, entries));
}

MoeShape shapeOf(int ranks, bool fused) {
  MoeShape shape = smallShape(ranks);
  shape.fused = fused;
  return shape;
}

TEST_CASE("dense, scaled and adapted families give the same bits on any executor, fused or not") {
  for (const int ranks : {1, 2, 3}) {
    const Program unfused = programOf(buildWideProgram({shapeOf(ranks, false)}));
    const Program fused = programOf(buildWideProgram({shapeOf(ranks, true)}));
    for (const Sample& sample : samplesOf(ranks)) {
      INFO(ranks << " ranks, sample " << sample.seed);
      const uint64_t oracle = hashOn(unfused, sample, kSerial);
      CHECK(hashOn(fused, sample, kSerial) == oracle);
      for (const int threads : {1, 2, 3, 5}) {
        CHECK(hashOn(unfused, sample, {.threads = threads}) == oracle);
        CHECK(hashOn(fused, sample, {.threads = threads}) == oracle);
      }
    }
  }
}

TEST_CASE("the plain layer gives the same bits with its activations in the tasks of the products") {
  for (const auto& [ranks, activation] : {std::pair(1, ActivationKind::kSwiglu),
                                          {3, ActivationKind::kSwiglu},
                                          {1, ActivationKind::kRelu2},
                                          {3, ActivationKind::kSilu}}) {
    MoeShape shape = shapeOf(ranks, false);
    shape.activation = activation;
    const Program unfused = programOf(buildMoeProgram(shape));
    shape.fused = true;
    const Program fused = programOf(buildMoeProgram(shape));
    for (const Sample& sample : samplesOf(ranks)) {
      INFO(ranks << " ranks, " << text::word(activation) << ", sample " << sample.seed);
      const uint64_t oracle = hashOn(unfused, sample, kSerial);
      CHECK(hashOn(fused, sample, kSerial) == oracle);
      for (const int threads : {1, 2, 3, 5}) CHECK(hashOn(fused, sample, {.threads = threads}) == oracle);
    }
  }
}

TEST_CASE("products on groups of slots give the bits of products on slots, on any executor") {
  for (const int ranks : {1, 3}) {
    MoeShape shape = shapeOf(ranks, false);
    const Program plain = programOf(buildMoeProgram(shape));
    for (const bool fused : {false, true}) {
      for (const int groupSlots : {2, 3}) {
        shape = shapeOf(ranks, fused);
        shape.groupSlots = groupSlots;
        const Program grouped = programOf(buildMoeProgram(shape));
        for (const Sample& sample : samplesOf(ranks)) {
          INFO(ranks << " ranks, sample " << sample.seed << ", groups of " << groupSlots);
          const uint64_t oracle = hashOn(plain, sample, kSerial);
          CHECK(hashOn(grouped, sample, kSerial) == oracle);
          for (const int threads : {1, 3}) CHECK(hashOn(grouped, sample, {.threads = threads}) == oracle);
        }
      }
    }
  }
}

TEST_CASE("a lost arrival of a group of slots is reported with the group, and with who did not send it") {
  MoeShape shape = shapeOf(2, false);
  shape.groupSlots = 2;
  const Program program = programOf(buildMoeProgram(shape));
  LayerData data = makeProgramData(program.tables(), {90, 90}, DataRouting::kFewExperts, 1);
  std::vector<std::unique_ptr<FaultyTransport>> faulty(2);
  const auto wrap = [&](int rank, Transport& real) -> Transport& {
    faulty[rank] =
        std::make_unique<FaultyTransport>(real, [rank](int to, SymmetricHandle, size_t, uint64_t rows) {
          return !(rank == 1 && to == 0 && rows > 1);
        });
    return *faulty[rank];
  };
  const Status ran = runLayer(program, {.threads = 1, .timeoutSeconds = 0.3}, data, {"forward"}, wrap);
  REQUIRE_FALSE(ran.ok());
  CHECK_THAT(ran.error().message, Catch::Matchers::Contains("for event group_rows[") &&
                                      Catch::Matchers::Contains("before task up_proj[") &&
                                      Catch::Matchers::Contains("rows from rank 1"));
}

TEST_CASE("a product that nobody keeps stays in scratch, also where a slot has more rows than fit there") {
  MoeShape shape{
      .experts = 2, .topK = 1, .hidden = 33, .intermediate = 50, .maxTokens = 900, .slotRows = 512};
  shape.forwardOnly = true;
  const Program unfused = programOf(buildMoeProgram(shape));
  shape.fused = true;
  const Program fused = programOf(buildMoeProgram(shape));
  CHECK(fused.tables().buffers.size() + 1 == unfused.tables().buffers.size());
  for (const int64_t tokens : {900, 385, 200, 1}) {
    const Sample sample{{tokens}, DataRouting::kUniform, 6};
    for (const ops::Isa isa : ops::supportedIsas()) {
      INFO(tokens << " tokens, " << ops::isaName(isa));
      setenv("SLUICE_ISA", std::string(ops::isaName(isa)).c_str(), 1);
      CHECK(hashOn(fused, sample, {.threads = 3}, {"forward"}) ==
            hashOn(unfused, sample, kSerial, {"forward"}));
      unsetenv("SLUICE_ISA");
    }
  }
}

TEST_CASE("buffers side by side in a region give the same bits, also where other ranks put rows to them") {
  for (const int ranks : {1, 3}) {
    const TaskProgram tables = buildWideProgram({shapeOf(ranks, false)}), packed = packRegions(tables);
    CHECK(packed.regions.size() < tables.regions.size() / 2);
    const Program plain = programOf(tables), beside = programOf(packed);
    std::vector<std::unique_ptr<FaultyTransport>> wrapped(ranks);
    const auto hide = [&](int rank, Transport& real) -> Transport& {
      wrapped[rank] = std::make_unique<FaultyTransport>(
          real, [](int, SymmetricHandle, size_t, uint64_t) { return true; });
      wrapped[rank]->hideMemory();
      return *wrapped[rank];
    };
    for (const Sample& sample : samplesOf(ranks)) {
      INFO(ranks << " ranks, sample " << sample.seed);
      const uint64_t oracle = hashOn(plain, sample, kSerial);
      CHECK(hashOn(beside, sample, kSerial) == oracle);
      CHECK(hashOn(beside, sample, {.threads = 3}) == oracle);
      CHECK(hashOutputs(runOn(beside, sample, {.threads = 2}, kBoth, hide)) == oracle);
    }
  }
}

TEST_CASE("every output of a wide layer agrees with double precision on every instruction set") {
  for (const bool accumulate : {false, true})
    for (const bool fused : {false, true}) {
      const Program program =
          programOf(buildWideProgram({.base = shapeOf(2, fused), .accumulate = accumulate}));
      for (const ops::Isa isa : ops::supportedIsas()) {
        setenv("SLUICE_ISA", std::string(ops::isaName(isa)).c_str(), 1);
        for (const Sample& sample : samplesOf(2)) {
          const LayerData before = dataFor(program, sample);
          const LayerData after = runOn(program, sample, {.threads = 2});
          for (const auto& [name, error] : errorsOfProgram(program.verified(), before, after, kBoth, false)) {
            INFO(ops::isaName(isa) << ", sample " << sample.seed << ", " << name << (fused ? ", fused" : "")
                                   << (accumulate ? ", accumulated" : ""));
            CHECK(error <= 1.5e-2);
          }
        }
        unsetenv("SLUICE_ISA");
      }
    }
}

TEST_CASE("gradients in bf16 are those in fp32 rounded once, and accumulate in fp32") {
  const auto widened = [](TaskProgram program) {
    for (Buffer& buffer : program.buffers)
      if (buffer.role == Role::kOutput && buffer.name.find("grad") != std::string::npos)
        buffer.type = DType::kF32;
    return program;
  };
  const TaskProgram tables = buildWideProgram({shapeOf(2, false)});
  const Program narrow = programOf(tables), wide = programOf(widened(tables));
  const Program adding = programOf(buildWideProgram({.base = shapeOf(2, false), .accumulate = true}));
  const Sample sample{{70, 33}, DataRouting::kMasked, 9};
  const LayerData narrowData = runOn(narrow, sample, {.threads = 2});
  const LayerData wideData = runOn(wide, sample, {.threads = 2});
  // if gradients begin with numbers, other tensors get their random values in another order
  LayerData added = dataFor(adding, sample);
  const LayerData start = dataFor(adding, sample);
  LayerData same = dataFor(narrow, sample);
  for (int rank = 0; rank < 2; ++rank) added.inputs[rank] = std::move(same.inputs[rank]);
  REQUIRE(runLayer(adding, {.threads = 2}, added).ok());
  for (int rank = 0; rank < 2; ++rank)
    for (const char* name : {"lora_b_grad", "shared_gate_up_grad_out"}) {
      const float* exact = wideData.outputs[rank].at(name).as<float>();
      const BFloat16* found = narrowData.outputs[rank].at(name).as<BFloat16>();
      const BFloat16* before = start.outputs[rank].at(name).as<BFloat16>();
      const BFloat16* after = added.outputs[rank].at(name).as<BFloat16>();
      int64_t wrong = 0, wrongSum = 0, zeros = 0;
      const int64_t count = narrowData.outputs[rank].at(name).elements();
      for (int64_t i = 0; i < count; ++i) {
        wrong += found[i] != toBFloat16(exact[i]);
        wrongSum += after[i] != toBFloat16(toFloat(before[i]) + exact[i]);
        zeros += exact[i] == 0;
      }
      INFO("rank " << rank << ", " << name);
      CHECK(wrong == 0);
      CHECK(wrongSum == 0);
      CHECK(zeros < count);
    }
}

TEST_CASE("a lost signal of a slot of tokens is reported where dispatch waits for all of them") {
  const Program program = programOf(buildWideProgram({.base = {.experts = 2, .topK = 1, .cores = 2}}));
  LayerData data = makeProgramData(program.tables(), {20}, DataRouting::kUniform, 1);
  std::unique_ptr<FaultyTransport> faulty;
  int signals = 0;
  const auto wrap = [&](int, Transport& real) -> Transport& {
    faulty = std::make_unique<FaultyTransport>(
        real, [&](int, SymmetricHandle, size_t, uint64_t) { return ++signals != 2; });
    return *faulty;
  };
  const Status ran = runLayer(program, {.threads = 1, .timeoutSeconds = 0.3}, data, {"forward"}, wrap);
  REQUIRE_FALSE(ran.ok());
  CHECK_THAT(ran.error().message,
             Catch::Matchers::Contains("for event xs_all[0] (2 of 3 tasks) before task dispatch[0,0]"));
}

// The second entry reads what the first saved, and no tensor of the caller.
TaskProgram gramProgram() {
  ProgramBuilder b;
  b.program.name = "gram";
  b.program.maxTokens = 40;
  b.program.cores = 2;
  const SpaceId tokens = b.space("tokens", SpaceKind::kTokens, 16, 2);
  const SpaceId once = b.space("once", SpaceKind::kOnce);
  const BufferId ids = b.buffer("expert_ids", DType::kI32, {kDimT, fixedDim(1)}, Role::kInput);
  const BufferId x = b.buffer("x", DType::kBF16, {kDimT, fixedDim(24)}, Role::kInput);
  const BufferId weight = b.buffer("weight", DType::kBF16, {fixedDim(24), fixedDim(8)}, Role::kInput);
  const BufferId product = b.own("product", DType::kBF16, {kDimT, fixedDim(8)}, Role::kSaved);
  const BufferId gram = b.buffer("gram", DType::kF32, {fixedDim(8), fixedDim(8)}, Role::kOutput);
  b.beginEntry("first", ids, {});
  b.family({.name = "product",
            .op = OpKind::kGmm,
            .space = tokens,
            .tiles = 1,
            .tiling = {.n = 8, .k = 24, .tileN = 8},
            .reads = {x, weight},
            .writes = {product},
            .waits = {},
            .signals = {},
            .priority = 0});
  b.beginEntry("second", {}, EntryId{0});
  b.family({.name = "gram",
            .op = OpKind::kGmmWeightGrad,
            .space = once,
            .tiles = 1,
            .tiling = {.m = 8, .n = 8, .tileM = 8, .tileN = 8},
            .reads = {product, product, {}},
            .writes = {gram},
            .waits = {},
            .signals = {},
            .priority = 0});
  return b.program;
}

TEST_CASE("an entry without a tensor of tokens has the tokens of the entry whose routing it uses") {
  const Program program = programOf(gramProgram());
  for (int64_t tokens : {40, 1, 0}) {
    const LayerData before = makeProgramData(program.tables(), {tokens}, DataRouting::kUniform, 7);
    LayerData after = makeProgramData(program.tables(), {tokens}, DataRouting::kUniform, 7);
    const Status ran = runLayer(program, {.threads = 2}, after, {"first", "second"});
    REQUIRE((ran ? "" : ran.error().message) == "");
    const auto verified = verify(gramProgram());
    REQUIRE(verified.ok());
    const auto errors = errorsOfProgram(*verified, before, after, {"first", "second"}, false);
    REQUIRE(errors.contains("gram"));
    CHECK(errors.at("gram") <= 1.2e-2);
  }
}

}  // namespace
}  // namespace sluice

// Layers whose frozen weights are codes, with rows of codes and of bf16, and layers whose products round
// their factors, against double each.
#include "runtime/base/encodings.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "runtime/program/op_table.h"
#include "runtime/program/verify.h"
#include "tests/layer/graph_run.h"
#include "tools/evaluate/output_errors.h"

namespace sluice {
namespace {

struct Shape {
  int ranks = 1, tp = 1, experts = 8, topK = 2, hidden = 160, intermediate = 96;
};

// A layer's encodings, and what the tests must know of them.
struct Case {
  std::string encode;

  Encodings encodings() const { return *parseEncodings(encode); }
  bool rounds() const { return encodings().rows->rounds(); }
  bool packs() const { return rounds() || encodings().rows->hasCodes() || encodings().grads->hasCodes(); }
  int32_t block() const {
    const Encoding& rows = *encodings().rows;
    if (rounds()) return findInfo(rows.rounding).isScaled ? 0 : kMxBlock;
    int32_t largest = 0;
    for (const char* const weight : {"gate_up_weight", "down_weight"})
      if (const Encoding codes = encodings().ofWeight(weight); isCodes(codes.element))
        largest = std::max(largest, codes.along);
    return largest;
  }
  bool fits(const Shape& s) const {
    return block() == 0 || (s.hidden % block() == 0 && s.intermediate / s.tp % block() == 0);
  }
  std::vector<std::string> trainable() const {
    return rounds() ? std::vector<std::string>{"all"} : std::vector<std::string>{"x", "expert_weights"};
  }
  // The largest error that quantisation may cost.
  double limit() const {
    if (!rounds()) return 0.035;
    return findInfo(encodings().grads->rounding).mantissaBits == 2 ? 0.18 : 0.10;
  }
};

const std::vector<Case> kCases = {{"int8,rows=int8"},
                                  {"int8"},
                                  {"int4,rows=int8"},
                                  {"int4:g32,rows=int8"},
                                  {"int4:g32z,rows=int8"},
                                  {"int4:g32z"},
                                  {"int4:g32z:f16,rows=int8"},
                                  {"int4:g32z:bf16"},
                                  {"int4:g32:f16"},
                                  {"int4"},
                                  {"fp8e4m3:128x128"},
                                  {"mxfp4"},
                                  {"nvfp4"},
                                  {"int4:g32z,weights.down_weight=int8"},
                                  {"weights.gate_up_weight=int4:g32,rows=int8"},
                                  {"int4:z,rows=int8"},
                                  {"int8,rows=int8,grads=int8"},
                                  {"int8,grads=int8"},
                                  {"int4,rows=int8,grads=int8"},
                                  {"mxfp8"},
                                  {"mxfp8:floor,grads=mxfp8e5m2:floor"},
                                  {"mxfp8:32x32"},
                                  {"mxfp8:32x32:floor,grads=mxfp8e5m2:floor"},
                                  {"fp8e4m3"},
                                  {"fp8e4m3,grads=fp8e5m2"},
                                  {"fp8e4m3:delayed,grads=fp8e5m2"}};

CompileOptions optionsOf(const Shape& s, const Case& each) {
  CompileOptions options{.sets = {{"ep", s.ranks / s.tp},
                                  {"tp", s.tp},
                                  {"experts", s.experts},
                                  {"top_k", s.topK},
                                  {"hidden", s.hidden},
                                  {"intermediate", s.intermediate},
                                  {"max_tokens", 128}},
                         .cores = 3,
                         .slotRows = 32};
  options.encode = each.encode;
  return options;
}

tools::InputsSpec inputsOf(const Shape& s, uint64_t seed) {
  tools::InputsSpec spec{.tokens = {.counts = {}}, .routing = {tools::RoutingKind::kZipf, 1.1}, .seed = seed};
  for (int rank = 0; rank < s.ranks; ++rank) spec.tokens.counts.push_back(rank == 1 ? 0 : 90 - 17 * rank);
  return spec;
}

// Errors without and with that of quantisation.
void checkLayer(const Program& program, const tools::InputsSpec& spec, double limit) {
  const LayerData before = makeGraphData(program, spec);
  onEveryIsa([&] {
    const LayerData data = runOf(program, {.threads = 3, .pin = false}, before);
    checkErrors(errorsOfGraph(program, data), program, data);
    const auto all = tools::outputErrors(program.verified(), data.inputs, data.outputs, 1, true);
    REQUIRE(all.ok());
    for (const tools::OutputError& error : *all) {
      INFO(error.name);
      CHECK(error.relative < limit);
    }
    CHECK(hashOutputs(runOf(program, {.threads = 1}, before)) == hashOutputs(data));
    CHECK(hashOutputs(runOf(program, kSerial, before)) == hashOutputs(data));
  });
}

TEST_CASE("a layer of low precision is what its formulas are, forward and backward, on 1 to 4 ranks") {
  for (const Shape& shape :
       {Shape{}, Shape{.ranks = 2}, Shape{.ranks = 3, .experts = 7, .topK = 3},
        Shape{.ranks = 4, .hidden = 72, .intermediate = 40}, Shape{.ranks = 4, .tp = 2, .intermediate = 64}})
    for (const Case& each : kCases) {
      if (!each.fits(shape)) continue;
      INFO(shape.ranks << " ranks, tp " << shape.tp << ", " << each.encode);
      CompileOptions options = optionsOf(shape, each);
      options.trainable = each.trainable();
      checkLayer(compileGraph("forward.json", options), inputsOf(shape, 3), each.limit());
    }
}

TEST_CASE("what is fused and the sizes of slots and tiles change no bit") {
  const Shape shape{.ranks = 2};
  for (const Case& each : kCases) {
    std::optional<uint64_t> bits;
    for (const int32_t slotRows : {16, 64})
      for (const int32_t tile : {findInfo(each.encodings().trained->rounding).isSquare ? 32 : 16, 96, 0})
        for (const std::vector<std::string>& fuse : {std::vector<std::string>{"none"}, {}}) {
          CompileOptions options = optionsOf(shape, each);
          options.trainable = each.trainable();
          options.slotRows = slotRows, options.tile = tile, options.fuse = fuse;
          const Program program = compileGraph("forward.json", options);
          const uint64_t found = hashOutputs(
              runOf(program, {.threads = 2, .pin = false}, makeGraphData(program, inputsOf(shape, 5))));
          if (!bits) bits = found;
          INFO(each.encode << ", slots of " << slotRows << ", tiles of " << tile);
          CHECK(found == *bits);
        }
  }
}

// The output of rows, which a program without a derived backward has, keeps rows bf16 until they have
// arrived.
TEST_CASE("codes that travel have the bits of rows that are quantised where they arrive") {
  for (const Shape& shape : {Shape{}, Shape{.ranks = 3, .experts = 7, .topK = 3},
                             Shape{.ranks = 4, .tp = 2, .intermediate = 64}}) {
    CompileOptions options = optionsOf(shape, {"int8,rows=int8"});
    const Program late = compileGraph("forward.json", options);
    options.trainable = std::vector<std::string>{"x"};
    const Program early = compileGraph("forward.json", options);
    const auto sent = [](const Program& program) {
      for (const Family& family : program.tables().families)
        if (family.op == OpKind::kDispatch)
          return program.tables().at(findBuffer(family, &Operands::rows)).type;
      return DType::kF32;
    };
    CHECK(sent(late) == DType::kBF16);
    CHECK(sent(early) == DType::kI8);
    LayerData before = makeGraphData(early, inputsOf(shape, 11));
    LayerData ofLate = makeGraphData(late, inputsOf(shape, 11));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      tools::Tensor& x = ofLate.inputs[rank].at("x");
      if (rank == 0) {  // a row that is not finite, and one of zeros
        setElement(DType::kBF16, x.data(), 3 * shape.hidden + 5, std::numeric_limits<float>::infinity());
        std::fill_n(x.data(), shape.hidden * 2, std::byte{0});
      }
      for (auto& [name, tensor] : ofLate.inputs[rank])
        std::copy_n(tensor.data(), tensor.bytes(), before.inputs[rank].at(name).data());
    }
    const LayerData found = runOf(early, {.threads = 2, .pin = false}, before);
    const LayerData expected = runOf(late, {.threads = 2, .pin = false}, ofLate);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const tools::Tensor &a = found.outputs[rank].at("y"), &b = expected.outputs[rank].at("y");
      REQUIRE(a.bytes() == b.bytes());
      INFO(shape.ranks << " ranks, rank " << rank);
      CHECK((a.bytes() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0));
    }
  }
}

// Two steps, the second with what the first has packed; the bytes packed.
int64_t runTwice(const Program& program, LayerData& data, Weights weights) {
  int64_t packed = 0;
  const auto results =
      runRanks(program, {.threads = 2, .pin = false}, [&](int rank, Context& context) -> Status {
        for (auto& [name, tensor] : data.inputs[rank])
          if (Status bound = context.bind(name, viewTensor(tensor), weights); !bound) return bound;
        for (auto& [name, tensor] : data.outputs[rank])
          if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
        for (int step = 0; step < 2; ++step)
          for (const Entry& entry : program.tables().entries)
            if (Status ran = context.run(entry.name); !ran) return ran;
        packed = context.packedWeights().bytes;
        return {};
      });
  INFO((results[0] ? "" : results[0].error().message));
  CHECK(results[0].ok());
  return packed;
}

TEST_CASE("packing weights once changes no bit") {
  const int64_t numbers = 8 * 3 * 160 * 96;
  for (const Case& each : kCases) {
    CompileOptions options = optionsOf({}, each);
    if (each.encodings().grads->hasCodes()) options.trainable = each.trainable();
    const Program program = compileGraph("forward.json", options);
    const LayerData before = makeGraphData(program, inputsOf({}, 7));
    onEveryIsa([&] {
      LayerData data = runOf(program, {.threads = 2, .pin = false}, before);
      const uint64_t bits = hashOutputs(data);
      CHECK(runTwice(program, data, Weights::kOrdinary) == 0);
      CHECK(hashOutputs(data) == bits);
      const int64_t packed = runTwice(program, data, Weights::kConstant);
      CHECK(hashOutputs(data) == bits);
      const int64_t expected =
          each.rounds()                                                                          ? 2 * numbers
          : each.encodings().weights->element == DType::kU8 && each.encodings().rows->hasCodes() ? numbers / 2
                                                                                                 : numbers;
      CHECK((each.packs() ? packed >= expected : packed == 0));
    });
  }
}

// What verify() says of a layer with such weights after a change of a family.
template <class Change>
std::string weightsRefusal(const char* encode, const char* family, const Change& change) {
  TaskProgram program = compileGraph("forward.json", optionsOf(Shape{}, Case{encode})).tables();
  for (Family& each : program.families)
    if (each.name == family) change(program, each, findOperands(each));
  const Expected<VerifiedProgram> verified = verify(std::move(program));
  return verified ? "accepted" : verified.error().message;
}

TEST_CASE("weights of 8-bit floats that do not fit are refused") {
  using Ids = const Operands&;
  const auto ofUp = [](const auto& change) {
    return weightsRefusal("fp8e4m3:128x128", "up_proj_swiglu", change);
  };
  CHECK(ofUp([](TaskProgram&, Family&, Ids) {}) == "accepted");
  CHECK_THAT(ofUp([](TaskProgram& p, Family&, Ids ids) { ++p.buffers[ids.scaleB.value].shape.back().size; }),
             Catch::Matchers::Contains("with a number for each 128 by 128 of its last dimensions"));
  CHECK_THAT(ofUp([](TaskProgram&, Family& f, Ids) { operandBuffer(f, &Operands::scaleB) = {}; }),
             Catch::Matchers::Contains("has no 'weight_scale', but operand 'weight' is buffer"));
  CHECK_THAT(ofUp([](TaskProgram&, Family& f, Ids) { f.tiling.roundA = Rounding::kMxE4m3; }),
             Catch::Matchers::Contains("is rounded to mx_e4m3, but operand 'weight' is buffer "
                                       "'gate_up_weight' of type F8_E4M3, expected BF16"));
  CHECK_THAT(weightsRefusal("fp8e4m3:128x128", "dispatch",
                            [](TaskProgram& p, Family&, Ids ids) {
                              p.buffers[ids.tokens.value].type = DType::kF8_E4M3;
                            }),
             Catch::Matchers::Contains("the caller's memory, expected one between kernels"));
}

TEST_CASE("a factor belongs to scales that are 8-bit floats, and to one weight") {
  using Ids = const Operands&;
  CHECK(weightsRefusal("nvfp4", "up_proj_swiglu", [](TaskProgram&, Family&, Ids) {}) == "accepted");
  CHECK_THAT(weightsRefusal("nvfp4", "up_proj_swiglu",
                            [](TaskProgram& p, Family&, Ids ids) {
                              p.buffers[ids.scaleB.value].type = DType::kF8_E8M0;
                            }),
             Catch::Matchers::Contains("has a 'weight_factor', but operand 'weight_scale' is buffer "
                                       "'gate_up_weight_scale' of type F8_E8M0, expected F8_E4M3"));
  CHECK_THAT(weightsRefusal("nvfp4", "down_proj",
                            [](TaskProgram& p, Family& f, Ids) {
                              for (const Family& each : p.families)
                                if (each.name.ends_with("up_proj_swiglu"))
                                  operandBuffer(f, &Operands::factorB) = findBuffer(each, &Operands::factorB);
                            }),
             Catch::Matchers::Contains("takes buffer 'gate_up_weight_factor' for the factor of buffer "
                                       "'down_weight', but it has those of buffer 'gate_up_weight'"));
}

TEST_CASE("scales that are powers of two belong to codes of 4 bits that rows of bf16 multiply") {
  using Ids = const Operands&;
  const auto toPowers = [](TaskProgram& p, Family&, Ids ids) {
    p.buffers[ids.scaleB.value].type = DType::kF8_E8M0;
  };
  CHECK(weightsRefusal("mxfp4", "up_proj_swiglu", toPowers) == "accepted");
  CHECK_THAT(
      weightsRefusal("int8", "up_proj_swiglu", toPowers),
      Catch::Matchers::Contains("of type F8_E8M0, expected F32 beside buffer 'gate_up_weight' of type I8"));
  CHECK_THAT(weightsRefusal("int4:g32,rows=int8", "up_proj_swiglu", toPowers),
             Catch::Matchers::Contains("of type U8, which rows of codes multiply"));
  CHECK_THAT(weightsRefusal("int4:g32z", "up_proj_swiglu", toPowers),
             Catch::Matchers::Contains("operand 'weight_zero' is buffer"));
  CHECK_THAT(
      weightsRefusal("int4:g32z:f16", "up_proj_swiglu",
                     [](TaskProgram& p, Family&, Ids ids) { p.buffers[ids.zeroB.value].type = DType::kF32; }),
      Catch::Matchers::Contains("'gate_up_weight_zero' F32 [8, 5, 192], expected I8 [8, 5, 192] as "
                                "buffer 'gate_up_weight_scale'"));
  CHECK_THAT(
      weightsRefusal(
          "int8", "up_proj_swiglu",
          [](TaskProgram& p, Family&, Ids ids) { p.buffers[ids.scaleB.value].type = DType::kF16; }),
      Catch::Matchers::Contains("of type F16, expected F32 beside buffer 'gate_up_weight' of type I8"));
  CHECK_THAT(weightsRefusal("mxfp4", "dispatch",
                            [](TaskProgram& p, Family&, Ids ids) {
                              p.buffers[ids.tokens.value].type = DType::kF8_E8M0;
                            }),
             Catch::Matchers::Contains("operand 'tokens' is buffer"));
}

}  // namespace
}  // namespace sluice

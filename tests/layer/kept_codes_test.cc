// What a forward keeps as codes of 8-bit floats: the bits of what it would keep as bf16, in fewer bytes; and
// programs with such codes that are refused.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/program/op_table.h"
#include "runtime/program/verify.h"
#include "tests/layer/fp8_layer.h"

namespace sluice {
namespace {

// Behind encodings: rows are kept as bf16, not as codes.
constexpr const char* kKeptBf16 = ",kept=bf16";

CompileOptions optionsOf(const Fp8Shape& shape, const std::string& encode) {
  CompileOptions options = fp8Options(shape);
  options.encode = encode;
  return options;
}

uint64_t bitsOf(const Fp8Shape& shape, const CompileOptions& options, int threads) {
  const Program program = compileGraph("forward.json", options);
  return hashOutputs(runOf(program, {.threads = threads, .pin = false}, fp8Data(shape, program)));
}

// Bytes of rows that are kept for the backward, and those of experts.
struct KeptSize {
  int64_t ofRow = 0, ofExperts = 0;
};
KeptSize keptSize(const TaskProgram& program) {
  KeptSize size;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != Role::kSaved) continue;
    int64_t bytes = dtypeBytes(buffer.type);
    for (size_t d = 1; d < buffer.shape.size(); ++d) bytes *= buffer.shape[d].size;
    (buffer.shape[0].extent == Extent::kRows ? size.ofRow : size.ofExperts) +=
        bytes * std::max<int64_t>(1, buffer.shape[0].size);
  }
  return size;
}

TEST_CASE("kept codes give the bits of kept bf16 rows, on 1 to 4 ranks, for any sizes of tasks") {
  for (const Fp8Shape& shape : kFp8Shapes)
    for (const std::string squares : {"", ":32x32"})
      for (const std::string floor : {"", ":floor"}) {
        const std::string encode = "mxfp8" + squares + floor + ",grads=mxfp8e5m2" + floor;
        CompileOptions options = optionsOf(shape, encode + kKeptBf16);
        const uint64_t want = bitsOf(shape, options, 1);
        options.encode = encode;
        INFO(shape.ranks << " ranks, tp " << shape.tp << ", " << encode);
        CHECK(bitsOf(shape, options, 3) == want);
        options.tile = 32, options.slotRows = 16, options.keep = "minimal";
        CHECK(bitsOf(shape, options, 2) == want);
        options.keep = "regather", options.fuse = {"none"};
        CHECK(bitsOf(shape, options, 2) == want);
      }
}

TEST_CASE(
    "kept codes by amaxes give the bits of kept bf16 rows, measured, given, and for any sizes of tasks") {
  for (const Fp8Shape& shape : kFp8Shapes)
    for (const std::string amaxes : {"", ":amax", ":delayed"}) {
      const std::string encode = "fp8e4m3" + amaxes + ",grads=fp8e5m2";
      CompileOptions options =
          optionsOf({shape.ranks, shape.tp, shape.experts, shape.topK, 72}, encode);  // no blocks
      for (const char* const keep : {"all", "minimal", "regather"}) {
        options.keep = keep, options.encode = encode + kKeptBf16;
        INFO(shape.ranks << " ranks, tp " << shape.tp << ", " << encode << " " << keep);
        const uint64_t want = bitsOf(shape, options, 1);
        options.encode = encode;
        const TaskProgram program = compileGraph("forward.json", options).tables();
        CHECK(std::ranges::count(program.families, OpKind::kEncode, &Family::op) ==
              (keep == std::string("all")       ? 2
               : keep == std::string("minimal") ? 1
                                                : 0));
        CHECK(bitsOf(shape, options, 3) == want);
        CompileOptions other = options;
        other.tile = 32, other.slotRows = 16, other.fuse = {"none"};
        CHECK(bitsOf(shape, other, 2) == want);
      }
    }
}

TEST_CASE("on every instruction set kept codes give the bits of kept bf16 rows") {
  onEveryIsa([] {
    const Fp8Shape shape{.ranks = 2};
    for (const std::string encode : {"mxfp8", "fp8e4m3"}) {
      CompileOptions options = optionsOf(shape, encode);
      const uint64_t found = bitsOf(shape, options, 2);
      options.encode = encode + kKeptBf16;
      CHECK(found == bitsOf(shape, options, 2));
    }
  });
}

// A linear layer keeps tokens, all of one amax.
TEST_CASE("kept tokens of a linear layer become codes, too") {
  for (const std::string encode : {"mxfp8", "fp8e4m3"}) {
    CompileOptions options{.sets = {{"tp", 2}, {"in", 96}, {"out", 64}, {"max_tokens", 50}}, .cores = 3};
    options.trainable = std::vector<std::string>{"all"};
    const auto bits = [&](const std::string& kept) {
      options.encode = encode + kept;
      const Program program = compileGraph("linear/column_parallel.json", options);
      CHECK(std::ranges::count(program.tables().families, OpKind::kEncode, &Family::op) ==
            (kept.empty() ? 1 : 0));
      tools::InputsSpec spec{.tokens = {.counts = {17, 50}}, .seed = 4};
      return hashOutputs(runOf(program, {.threads = 2, .pin = false}, makeGraphData(program, spec)));
    };
    CHECK(bits("") == bits(kKeptBf16));
  }
}

TEST_CASE("kept codes take 0.68 and 0.70 of the bytes of bf16 rows") {
  const auto sizeFor = [](const std::string& encode) {
    CompileOptions options = optionsOf({}, encode);
    for (auto& [name, value] : options.sets) {
      if (name == "hidden") value = 2048;
      if (name == "intermediate") value = 768;
    }
    return keptSize(compileGraph("forward.json", options).tables());
  };
  CHECK(sizeFor("mxfp8,kept=bf16").ofRow == 8704);
  CHECK(sizeFor("mxfp8,kept=bf16").ofExperts == 0);
  CHECK(sizeFor("mxfp8").ofRow == 6064);
  CHECK(sizeFor("mxfp8").ofExperts == 8 * 2 * (2048 + 768));
  CHECK(sizeFor("fp8e4m3,kept=bf16").ofRow == 8704);
  CHECK(sizeFor("fp8e4m3").ofRow == 5888);
  CHECK(sizeFor("fp8e4m3").ofExperts == 8 * 2 * 4);  // amaxes of x and of activations
}

// What verify() says of the program after a change of a family.
template <class Change>
std::string refusal(const char* family, const Change& change, const std::string& encode = "mxfp8") {
  TaskProgram program = compileGraph("forward.json", optionsOf({}, encode)).tables();
  bool found = false;
  for (Family& each : program.families)
    if (each.name == family) change(program, each), found = true;
  REQUIRE(found);
  const Expected<VerifiedProgram> verified = verify(std::move(program));
  return verified ? "accepted" : verified.error().message;
}

TEST_CASE("codes that do not fit what reads them are refused") {
  const std::string grad = "family 'gate_up_weight_grad' of entry 'backward'",
                    encode = "family 'act_encode' of entry 'forward'";
  const auto ofGrad = [](const auto& change) { return refusal("gate_up_weight_grad", change); };
  const auto ofEncode = [](const auto& change) { return refusal("act_encode", change); };
  CHECK(ofGrad([](TaskProgram&, Family&) {}) == "accepted");
  CHECK(ofGrad([](TaskProgram&, Family& f) { f.reads.resize(6); }) ==
        grad + " has no 'end_scales', but operand 'a' has codes of rounding mx_e4m3");
  CHECK(ofGrad([](TaskProgram&, Family& f) { f.tiling.roundA = Rounding::kNone; }) ==
        grad + ": factor 'a' has codes, but is rounded to none, expected E4M3, not in squares");
  CHECK(ofGrad([](TaskProgram&, Family& f) { f.tiling.roundA = Rounding::kMxE5m2; }) ==
        grad + ": factor 'a' has codes, but is rounded to mx_e5m2, expected E4M3, not in squares");
  CHECK(ofGrad([](TaskProgram&, Family& f) {
          operandBuffer(f, &Operands::b) = findBuffer(f, &Operands::a);
        }).find(grad + ": operand 'b'") == 0);
  CHECK(ofGrad([](TaskProgram&, Family& f) {
          std::swap(operandBuffer(f, &Operands::codeScales), operandBuffer(f, &Operands::endScales));
        }).find(grad + ": operand 'scales' is") == 0);
  CHECK(ofGrad([](TaskProgram&, Family& f) { f.tiling.flags |= 2; }) ==
        grad + " scales 'a', but has no 'row_scale'");
  CHECK(refusal("down_weight_grad", [](TaskProgram&, Family& f) { f.tiling.flags |= 2; }) ==
        "family 'down_weight_grad' of entry 'backward': factor 'a' has codes, but is multiplied by the row "
        "scale");
  CHECK(ofGrad([](TaskProgram& p, Family& f) {
          p.buffers[findBuffer(f, &Operands::a).value].type = DType::kI8;
        }).find("is buffer 'rows_x_codes' I8") != std::string::npos);
  CHECK(ofEncode([](TaskProgram& p, Family& f) {
          Buffer& codes = p.buffers[findBuffer(f, &Operands::codes).value];
          codes.role = Role::kOutput, codes.region = {}, codes.offset = 0;
        }) == "buffer 'act_codes' of type F8_E4M3 is the caller's memory, expected one between kernels");
  CHECK(ofEncode([](TaskProgram&, Family& f) { f.tiling.roundA = Rounding::kMxE4m3Square; }) ==
        encode + " encodes with rounding mx_e4m3_square, expected E4M3, not in squares");
  CHECK(ofEncode([](TaskProgram&, Family& f) { f.tiling.roundB = Rounding::kMxE4m3; }) ==
        encode + ": factor 'b' is rounded to mx_e4m3, but this op does not multiply");
  CHECK(ofEncode([](TaskProgram&, Family& f) { f.tiling.tileN = 48, f.tiles = 4; }) ==
        encode + " has ranges of 48 columns, expected multiples of 32");
  CHECK(ofEncode([](TaskProgram&, Family& f) { f.writes.resize(2); }) ==
        encode + " is in space experts, but its op needs rows");
}

// What a family reads where another one, whose codes have the same sizes, wrote its own.
TEST_CASE("codes with the scales or the amax of other codes are refused") {
  const auto taken = [](const std::string& encode, auto&& change) {
    TaskProgram program = compileGraph("forward.json", optionsOf({.hidden = 192}, encode)).tables();
    const auto family = [&](const char* name) -> Family& {
      const auto found = std::ranges::find(program.families, name, &Family::name);
      REQUIRE(found != program.families.end());
      return *found;
    };
    change(family("gate_up_weight_grad"), family("act_encode"));
    const Expected<VerifiedProgram> verified = verify(std::move(program));
    return verified ? "accepted" : verified.error().message;
  };
  const std::string grad = "family 'gate_up_weight_grad' of entry 'backward' takes buffer ";
  CHECK(taken("mxfp8", [](Family&, Family&) {}) == "accepted");
  CHECK(taken("mxfp8",
              [](Family& grad, Family& encode) {
                operandBuffer(grad, &Operands::codeScales) = findBuffer(encode, &Operands::codeScales);
              }) ==
        grad +
            "'act_scales' for the scales of buffer 'rows_x_codes', expected buffer 'rows_x_scales' as "
            "family 'rows_x_encode' of entry 'forward' has it");
  CHECK(taken("mxfp8", [](Family& grad, Family& encode) {
          operandBuffer(grad, &Operands::endScales) = findBuffer(encode, &Operands::endScales);
        }).find(grad + "'act_end_scales' for the end scales of buffer 'rows_x_codes'") == 0);
  CHECK(taken("fp8e4m3", [](Family& grad, Family& encode) {
          operandBuffer(grad, &Operands::amaxA) = findBuffer(encode, &Operands::amaxA);
        }).find("for the amax of buffer 'rows_x_codes'") != std::string::npos);
}

TEST_CASE("codes by an amax that do not fit are refused") {
  const std::string grad = "family 'gate_up_weight_grad' of entry 'backward'",
                    encode = "family 'act_encode' of entry 'forward'";
  const auto ofGrad = [](const auto& change) { return refusal("gate_up_weight_grad", change, "fp8e4m3"); };
  const auto ofEncode = [](const auto& change) { return refusal("act_encode", change, "fp8e4m3"); };
  CHECK(ofEncode([](TaskProgram&, Family&) {}) == "accepted");
  CHECK(ofGrad([](TaskProgram&, Family& f) { operandBuffer(f, &Operands::amaxA) = {}; }) ==
        grad + ": factor 'a' is rounded to e4m3 with no 'a_amax', expected one");
  CHECK(ofGrad([](TaskProgram&, Family& f) { f.tiling.roundA = Rounding::kMxE4m3; }) ==
        grad + ": factor 'a' is rounded to mx_e4m3 with a 'a_amax', expected none");
  CHECK(ofEncode([](TaskProgram&, Family& f) { f.reads.resize(1); }) ==
        encode + ": factor 'a' is rounded to e4m3 with no 'amax', expected one");
  CHECK(ofEncode([](TaskProgram&, Family& f) { f.tiling.roundA = Rounding::kMxE4m3; }) ==
        encode + ": factor 'a' is rounded to mx_e4m3 with a 'amax', expected none");
  CHECK(ofEncode([](TaskProgram&, Family& f) { f.tiling.roundA = Rounding::kE5m2; }) ==
        encode + " encodes with rounding e5m2, expected E4M3, not in squares");
}

}  // namespace
}  // namespace sluice

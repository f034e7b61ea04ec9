// Tokens that are sent as codes of 8-bit floats: the same results as from rows that are rounded where they
// arrive, and weight gradients of the numbers that codes stand for.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/program/op_table.h"
#include "runtime/program/verify.h"
#include "tests/layer/fp8_layer.h"

namespace sluice {
namespace {

CompileOptions optionsWith(const Fp8Shape& shape, bool sendsCodes) {
  CompileOptions options = fp8Options(shape);
  if (sendsCodes) options.encode = "mxfp8,sent=mxfp8";
  return options;
}

TEST_CASE("results and gradients of tokens have the bits of rows that are rounded where they arrive") {
  for (const Fp8Shape& shape : kFp8Shapes)
    for (const std::string squares : {"", ":32x32"})
      for (const std::string floor : {"", ":floor"}) {
        const std::string encode = "mxfp8" + squares + floor + ",grads=mxfp8e5m2" + floor;
        INFO(shape.ranks << " ranks, tp " << shape.tp << ", " << encode);
        const auto run = [&](bool sendsCodes) {
          CompileOptions options = fp8Options(shape);
          options.encode = encode + (sendsCodes ? ",sent=mxfp8" + floor : "");
          const Program program = compileGraph("forward.json", options);
          return runOf(program, {.threads = 2, .pin = false}, fp8Data(shape, program));
        };
        const LayerData rows = run(false), codes = run(true);
        for (size_t rank = 0; rank < rows.outputs.size(); ++rank)
          for (const char* const name : {"y", "dx", "d_expert_weights", "down_weight_grad"}) {
            INFO(name << " of rank " << rank);
            const tools::Tensor &found = codes.outputs[rank].at(name), &want = rows.outputs[rank].at(name);
            REQUIRE(found.bytes() == want.bytes());
            CHECK(std::equal(found.data(), found.data() + found.bytes(), want.data()));
          }
      }
}

TEST_CASE(
    "a layer that sends codes is what its formulas are, for any sizes of tasks, on every instruction set") {
  for (const Fp8Shape& shape : kFp8Shapes) {
    const Program program = compileGraph("forward.json", optionsWith(shape, true));
    const LayerData before = fp8Data(shape, program);
    std::optional<uint64_t> bits;
    onEveryIsa([&] {
      const LayerData data = runOf(program, {.threads = 3, .pin = false}, before);
      checkErrors(errorsOfGraph(program, data), program, data);
      CHECK(hashOutputs(runOf(program, {.executor = ExecutorKind::kSerial}, before)) == hashOutputs(data));
    });
    for (const char* const keep : {"all", "minimal", "regather"})
      for (const int32_t tile : {32, 0}) {
        CompileOptions options = optionsWith(shape, true);
        options.keep = keep, options.tile = tile, options.slotRows = tile == 0 ? 64 : 16;
        if (tile != 0) options.fuse = {"none"};
        const Program other = compileGraph("forward.json", options);
        const uint64_t found = hashOutputs(runOf(other, {.threads = 2, .pin = false}, fp8Data(shape, other)));
        INFO(shape.ranks << " ranks, keep " << keep << ", tile " << tile);
        CHECK(found == bits.value_or(found));
        bits = found;
      }
  }
}

TEST_CASE("a forward without a backward sends codes, too, and half as many bytes travel") {
  const Fp8Shape shape{.ranks = 2, .hidden = 2048};
  const auto ofRow = [&](bool sendsCodes) {
    CompileOptions options = optionsWith(shape, sendsCodes);
    options.trainable.reset();
    const TaskProgram program = compileGraph("forward.json", options).tables();
    int64_t bytes = 0;
    for (const Family& family : program.families) {
      if (family.op != OpKind::kDispatch) continue;
      for (const BufferId id : family.writes)
        if (id) bytes += program.at(id).shape[1].size * dtypeBytes(program.at(id).type);
    }
    return bytes;
  };
  CHECK(ofRow(false) == 4096);
  CHECK(ofRow(true) == 2048 + 2 * 64);
}

// What verify() says of the program after a change of a family.
template <class Change>
std::string dispatchRefusal(const char* family, const Change& change) {
  TaskProgram program = compileGraph("forward.json", optionsWith({}, true)).tables();
  for (Family& each : program.families)
    if (each.name == family && each.entry.value == 0) change(program, each);
  const Expected<VerifiedProgram> verified = verify(std::move(program));
  return verified ? "accepted" : verified.error().message;
}

TEST_CASE("codes of rows that do not fit what sends, reads or makes them are refused") {
  CHECK(dispatchRefusal("dispatch", [](TaskProgram&, Family&) {}) == "accepted");
  CHECK(dispatchRefusal("dispatch", [](TaskProgram&, Family& f) { f.reads.resize(2); }) != "accepted");
  CHECK(dispatchRefusal("dispatch", [](TaskProgram&, Family& f) { f.writes.resize(2); }) != "accepted");
  CHECK(dispatchRefusal("dispatch", [](TaskProgram& p, Family& f) {
          p.buffers[findBuffer(f, &Operands::tokenScales).value].shape.back().size = 4;
        }).find("operand 'scales'") != std::string::npos);
  CHECK(dispatchRefusal("up_proj_swiglu", [](TaskProgram&, Family& f) {
          operandBuffer(f, &Operands::scaleA) = {};
        }) != "accepted");
  CHECK(
      dispatchRefusal("up_proj_swiglu", [](TaskProgram&, Family& f) {
        f.tiling.roundA = Rounding::kNone;
      }).find("factor 'a' has codes, but is rounded to none, expected E4M3 in blocks") != std::string::npos);
  CHECK(dispatchRefusal("rows_x_encode", [](TaskProgram&, Family& f) { f.reads.resize(1); }) != "accepted");
  CHECK(dispatchRefusal("x_encode", [](TaskProgram&, Family& f) {
          f.writes.resize(1);
        }).find("has no 'scales', but encodes with rounding mx_e4m3") != std::string::npos);
}

}  // namespace
}  // namespace sluice

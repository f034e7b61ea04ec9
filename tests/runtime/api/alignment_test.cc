// Where tensors of the caller may lie: at any multiple of their elements' size, with the same bits.
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

// Copies of tensors that begin `offset` bytes after the start of a cache line.
class Shifted {
 public:
  TensorView of(tools::Tensor& tensor, size_t offset) {
    auto& memory = memories_.emplace_back(static_cast<size_t>(tensor.bytes()) + 128);
    auto* data = memory.data();
    data += (64 - reinterpret_cast<uintptr_t>(data) % 64) % 64 + offset;
    std::memcpy(data, tensor.data(), static_cast<size_t>(tensor.bytes()));
    views_.push_back({&tensor, data});
    return {tensor.type(), tensor.shape(), data};
  }
  void copyBack() const {
    for (const auto& [tensor, data] : views_)
      std::memcpy(tensor->data(), data, static_cast<size_t>(tensor->bytes()));
  }

 private:
  std::vector<std::vector<std::byte>> memories_;
  std::vector<std::pair<tools::Tensor*, std::byte*>> views_;
};

LayerData tensorsOf(const Program& program) {
  return makeLayerData(program.tables(), {.tokens = {.counts = {37}}, .seed = 4});
}

TEST_CASE("tensors anywhere at a multiple of their elements' size give the bits of aligned ones") {
  for (const bool fused : {false, true}) {
    MoeShape shape{.hidden = 72, .intermediate = 40};
    shape.fused = fused;
    auto program = Program::fromTaskProgram(buildMoeProgram(shape));
    REQUIRE(program.ok());
    LayerData alone = tensorsOf(*program);
    REQUIRE(runLayer(*program, {.threads = 1}, alone).ok());
    for (const size_t elements : {1, 2, 3, 5, 7, 15}) {
      LayerData data = tensorsOf(*program);
      LocalRanks ranks(1);
      auto context = Context::create(*program, ranks.transport(0), {.threads = 2});
      REQUIRE(context.ok());
      Shifted shifted;
      for (auto* tensors : {&data.inputs[0], &data.outputs[0]})
        for (auto& [name, tensor] : *tensors) {
          const size_t offset = elements * static_cast<size_t>(dtypeBytes(tensor.type()));
          REQUIRE((*context)->bind(name, shifted.of(tensor, offset)).ok());
        }
      REQUIRE((*context)->run("forward").ok());
      REQUIRE((*context)->run("backward").ok());
      shifted.copyBack();
      CHECK(hashOutputs(data) == hashOutputs(alone));
    }
  }
}

TEST_CASE("a tensor between two elements is refused by name, whichever it is") {
  auto program = Program::fromTaskProgram(buildMoeProgram({}));
  REQUIRE(program.ok());
  LayerData data = tensorsOf(*program);
  LocalRanks ranks(1);
  auto context = Context::create(*program, ranks.transport(0), {.threads = 1});
  REQUIRE(context.ok());
  int refused = 0;
  for (auto* tensors : {&data.inputs[0], &data.outputs[0]})
    for (auto& [name, tensor] : *tensors) {
      const auto size = static_cast<size_t>(dtypeBytes(tensor.type()));
      for (size_t offset = 1; offset < size; ++offset) {
        Shifted shifted;
        const Status bound = (*context)->bind(name, shifted.of(tensor, 8 + offset));
        REQUIRE_FALSE(bound.ok());
        CHECK(bound.error().message == "tensor '" + name + "' begins " + std::to_string(offset) +
                                           " bytes after a multiple of " + std::to_string(size) +
                                           ", expected a multiple of the element size");
        ++refused;
      }
      REQUIRE((*context)->bind(name, viewTensor(tensor)).ok());
    }
  CHECK(refused >= 20);
  CHECK((*context)->run("forward").ok());
}

}  // namespace
}  // namespace sluice

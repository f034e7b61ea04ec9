// Weight gradients that an entry of their own computes have the bits of those that backward computes with the
// rest.
#include <catch2/catch.hpp>
#include <functional>

#include "tests/layer/fp8_layer.h"

namespace sluice {
namespace {

const Entry* findWeightGrads(const Program& program) {
  for (const Entry& entry : program.tables().entries)
    if (entry.name == "weight_grads") return &entry;
  return nullptr;
}

using MakeData = std::function<LayerData(const Program& program)>;

// Compiles the graph both ways, and compares all outputs, with the same inputs.
void checkSameBits(const std::string& graph, CompileOptions options, const MakeData& makeData) {
  const Program whole = compileGraph(graph, options);
  options.delayWeightGrads = true;
  const Program delayed = compileGraph(graph, options);
  CHECK_FALSE(findWeightGrads(whole));
  REQUIRE(findWeightGrads(delayed));
  const LayerData before = makeData(whole);
  const uint64_t want = hashOutputs(runOf(whole, {.threads = 2, .pin = false}, before));
  CHECK(hashOutputs(runOf(delayed, {.threads = 2, .pin = false}, before)) == want);
}

CompileOptions optionsOf(const Fp8Shape& shape, const std::string& encode, const std::string& keep) {
  CompileOptions options = fp8Options(shape);
  options.encode = encode, options.keep = keep;
  return options;
}

MakeData dataOf(const Fp8Shape& shape) {
  return [=](const Program& program) { return fp8Data(shape, program); };
}

TEST_CASE("delayed weight gradients have the same bits, whatever is kept and rounded, on 1 to 4 ranks") {
  const std::vector<std::pair<const char*, const char*>> cases = {{"", "all"},
                                                                  {"mxfp8,grads=mxfp8e5m2", "all"},
                                                                  {"mxfp8", "all"},
                                                                  {"fp8e4m3", "all"},
                                                                  {"fp8e4m3:amax", "all"},
                                                                  {"fp8e4m3:delayed", "all"},
                                                                  {"", "minimal"},
                                                                  {"mxfp8", "minimal"},
                                                                  {"", "regather"},
                                                                  {"fp8e4m3", "regather"}};
  for (const Fp8Shape& shape : kFp8Shapes)
    for (const auto& [encode, keep] : cases) {
      INFO(shape.ranks << " ranks, tp " << shape.tp << ", encode " << encode << ", keep " << keep);
      checkSameBits("forward.json", optionsOf(shape, encode, keep), dataOf(shape));
    }
}

TEST_CASE("delayed weight gradients have the same bits, whatever else is trained") {
  using Names = std::vector<std::string>;
  for (const Names& trainable : {Names{"gate_up_weight", "down_weight"}, Names{"x", "down_weight"},
                                 Names{"expert_weights", "gate_up_weight"}, Names{"down_weight"}})
    for (const int ranks : {1, 2})
      for (const bool accumulate : {false, true}) {
        const Fp8Shape shape{.ranks = ranks};
        CompileOptions options = optionsOf(shape, "", "all");
        options.trainable = trainable, options.accumulate = accumulate;
        options.grads = accumulate ? "F32" : "BF16";
        INFO(ranks << " ranks, " << trainable.front() << " and others, accumulate " << accumulate);
        checkSameBits("forward.json", options, dataOf(shape));
      }
}

TEST_CASE("delayed gradients of biases, of adapters and of linear layers have the same bits") {
  for (const int ranks : {1, 2}) {
    const Fp8Shape shape{.ranks = ranks};
    for (const char* const graph : {"biased.json", "lora.json"}) {
      CompileOptions options = optionsOf(shape, "", "all");
      INFO(graph << " on " << ranks << " ranks");
      checkSameBits(graph, options, dataOf(shape));
    }
    for (const char* const graph : {"linear/column_parallel_bias.json", "linear/row_parallel_bias.json"})
      for (const char* const keep : {"all", "regather"}) {
        CompileOptions options{.sets = {{"tp", ranks}, {"in", 96}, {"out", 64}, {"max_tokens", 50}},
                               .cores = 3};
        options.trainable = std::vector<std::string>{"all"};
        options.keep = keep;
        INFO(graph << " on " << ranks << " ranks, keep " << keep);
        tools::InputsSpec spec{.tokens = {.counts = {17, 50}}, .seed = 4};
        spec.tokens.counts.resize(ranks);
        checkSameBits(graph, options, [&](const Program& program) { return makeGraphData(program, spec); });
      }
  }
}

TEST_CASE("nothing is delayed where backward computes only weight gradients") {
  CompileOptions options{.sets = {{"tp", 2}, {"in", 96}, {"out", 64}, {"max_tokens", 50}}, .cores = 3};
  options.trainable = std::vector<std::string>{"weight"};
  options.delayWeightGrads = true;
  const auto compiled =
      compile("graphs/linear/column_parallel.json", *loadTarget("targets/cpu.json", {}), options);
  REQUIRE_FALSE(compiled);
  CHECK(compiled.error().message.find(
            "entry 'backward' computes only weight gradients, expected work that need not be "
            "delayed") != std::string::npos);
}

}  // namespace
}  // namespace sluice

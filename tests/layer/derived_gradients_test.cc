// A backward entry that the compiler derives gives the bits of the one in train.json.
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "compiler/api/compile.h"
#include "runtime/program/codec.h"
#include "tests/testing/layer_run.h"

namespace sluice {
namespace {

using Names = std::vector<std::string>;

Program compileLayer(const std::string& graph, const std::optional<Names>& trainable) {
  auto target = loadTarget("targets/cpu.json", {});
  if (!target) FAIL(target.error().message);
  const CompileOptions options{.sets = {{"ep", 2},
                                        {"experts", 6},
                                        {"top_k", 2},
                                        {"hidden", 72},
                                        {"intermediate", 40},
                                        {"max_tokens", 100}},
                               .cores = 3,
                               .slotRows = 32,
                               .tile = 32,
                               .trainable = trainable};
  auto tables = compile("graphs/moe_ffn/" + graph, *target, options);
  if (!tables) FAIL(tables.error().message);
  auto program = Program::fromBytes(encode(*tables));
  if (!program) FAIL(program.error().message);
  return std::move(*program);
}

std::set<std::string> namesWith(const Program& program, Role role) {
  std::set<std::string> names;
  for (const Buffer& buffer : program.tables().buffers)
    if (buffer.role == role) names.insert(buffer.name);
  return names;
}

// The trainable tensors that are bits of `mask`, with the names of their gradients.
struct Choice {
  Names trainable;
  std::set<std::string> outputs = {"y"};
};
Choice choiceOf(int mask) {
  static const std::pair<const char*, const char*> kAll[] = {{"x", "dx"},
                                                             {"expert_weights", "d_expert_weights"},
                                                             {"gate_up_weight", "gate_up_weight_grad"},
                                                             {"down_weight", "down_weight_grad"}};
  Choice choice;
  for (int bit = 0; bit < 4; ++bit)
    if (mask & (1 << bit)) {
      choice.trainable.push_back(kAll[bit].first);
      choice.outputs.insert(kAll[bit].second);
    }
  return choice;
}

// Runs with what the program has of the layer's tensors.
void runKnown(const Program& program, ExecutorKind executor, LayerData& data) {
  std::set<std::string> known = namesWith(program, Role::kInput);
  known.merge(namesWith(program, Role::kOutput));
  const auto body = [&](int rank, Context& context) -> Status {
    for (auto* tensors : {&data.inputs[rank], &data.outputs[rank]})
      for (auto& [name, tensor] : *tensors)
        if (known.contains(name))
          if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
    for (const char* entry : {"forward", "backward"})
      if (Status ran = context.run(entry); !ran) return ran;
    return {};
  };
  for (const Status& result : runRanks(program, {.threads = 2, .executor = executor}, body)) {
    INFO((result ? "" : result.error().message));
    REQUIRE(result.ok());
  }
}

bool sameBits(const tools::Tensor& a, const tools::Tensor& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

TEST_CASE("whatever is trainable, the gradients have the bits that train.json gives") {
  const Program train = compileLayer("train.json", std::nullopt);
  const tools::InputsSpec spec{
      .tokens = {.counts = {100, 37}}, .routing = {tools::RoutingKind::kZipf, 1.2}, .seed = 3};
  LayerData expected = makeLayerData(train.tables(), spec);
  runKnown(train, ExecutorKind::kParallel, expected);
  for (int mask = 1; mask < 16; ++mask) {
    const Choice choice = choiceOf(mask);
    const Program program = compileLayer("forward.json", choice.trainable);
    INFO("trainable: " << mask);
    CHECK(namesWith(program, Role::kOutput) == choice.outputs);
    LayerData found = makeLayerData(train.tables(), spec);
    runKnown(program, mask % 2 ? ExecutorKind::kParallel : ExecutorKind::kSerial, found);
    for (int rank = 0; rank < 2; ++rank)
      for (const std::string& name : choice.outputs) {
        INFO(name << " of rank " << rank);
        CHECK(sameBits(found.outputs[rank].at(name), expected.outputs[rank].at(name)));
      }
  }
}

TEST_CASE("all trainable is what train.json has, saved tensors included") {
  const Program train = compileLayer("train.json", std::nullopt);
  const Program derived = compileLayer("forward.json", Names{"all"});
  for (Role role : {Role::kInput, Role::kOutput, Role::kSaved})
    CHECK(namesWith(derived, role) == namesWith(train, role));
}

TEST_CASE("what nobody reads is not saved") {
  CHECK(namesWith(compileLayer("forward.json", Names{"down_weight"}), Role::kSaved) ==
        std::set<std::string>{"act"});
  CHECK(namesWith(compileLayer("forward.json", Names{"x"}), Role::kSaved) ==
        std::set<std::string>{"gate_up"});
}

}  // namespace
}  // namespace sluice

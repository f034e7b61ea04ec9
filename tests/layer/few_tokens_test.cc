// Results of one token and of a few, where numbers nearly cancel: right ones are accepted, wrong ones are
// not.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "tests/layer/graph_run.h"
#include "tools/evaluate/output_errors.h"

namespace sluice {
namespace {

constexpr double kTolerance = 1.2e-2;
constexpr int kSeeds = 70;

struct Graph {
  const char* file;
  std::optional<std::vector<std::string>> trainable = {{"all"}};
  std::vector<std::pair<std::string, int64_t>> sets = {};
  std::vector<std::pair<std::string, std::string>> words = {};
};

const Graph kGraphs[] = {
    {"train.json", std::nullopt},
    {"forward.json"},
    {"shared_expert.json", {{"all"}}, {{"shared_intermediate", 32}}},
    {"lora.json", {{"gate_up_a", "gate_up_b", "down_a", "down_b", "x"}}, {{"lora_rank", 4}}},
    {"two_gmms.json"},
    {"forward.json", {{"all"}}, {}, {{"activation", "swiglu_clamp"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "swiglu_oai"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "geglu"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "reglu"}}},
    {"forward.json", {{"all"}}, {}, {{"activation", "silu"}}},
    {"train.json", std::nullopt, {}, {{"activation", "relu2"}}},
};

Program compileSmall(const Graph& graph) {
  CompileOptions options{.sets = graph.sets, .words = graph.words, .trainable = graph.trainable};
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"ep", 1},
                                    {"experts", 8},
                                    {"top_k", 2},
                                    {"hidden", 64},
                                    {"intermediate", 48},
                                    {"max_tokens", 16}})
    options.sets.emplace_back(name, value);
  return compileGraph(graph.file, options);
}

LayerData runOf(const Program& program, int64_t tokens, uint64_t seed) {
  LayerData data = makeGraphData(program, {.tokens = {.counts = {tokens}}, .seed = seed});
  runGraph(program, ExecutorKind::kSerial, data);
  return data;
}

std::map<std::string, double> roundingOf(const Program& program, const LayerData& data) {
  const auto errors = tools::roundingErrors(program.verified(), data.inputs, data.outputs, 1);
  if (!errors) FAIL(errors.error().message);
  std::map<std::string, double> averages;
  for (const tools::OutputError& error : *errors) averages.emplace(error.name, error.relative);
  return averages;
}

// The outputs that are not accepted.
std::vector<std::string> rejected(const Program& program, const LayerData& data,
                                  int* aboveTolerance = nullptr) {
  std::vector<std::string> names;
  std::map<std::string, double> rounding;
  for (const tools::OutputError& error : errorsOfGraph(program, data)) {
    if (error.relative <= kTolerance) continue;
    if (rounding.empty()) rounding = roundingOf(program, data);
    if (aboveTolerance != nullptr) ++*aboveTolerance;
    const std::string name(error.name);
    UNSCOPED_INFO(name << ": found " << error.relative << ", rounding gives " << rounding.at(name));
    if (!tools::isAccepted(error.relative, kTolerance, rounding.at(name))) names.push_back(name);
  }
  return names;
}

TEST_CASE("right results of one to three tokens of every graph are accepted") {
  int runs = 0, aboveTolerance = 0;
  for (const Graph& graph : kGraphs) {
    const Program program = compileSmall(graph);
    for (uint64_t seed = 1; seed <= kSeeds; ++seed, ++runs) {
      INFO(graph.file << ", seed " << seed);
      const int64_t tokens = seed > kSeeds - 5 ? 2 + static_cast<int64_t>(seed % 2) : 1;
      CHECK(rejected(program, runOf(program, tokens, seed), &aboveTolerance).empty());
    }
  }
  CHECK(runs >= 500);
  CHECK(aboveTolerance > 0);  // else nothing here nearly cancels
}

// Ways in which an output is wrong; `other` is that of another seed.
enum class Fault { kOther, kNegated, kZero, kScaled, kOneElement };

void plant(Fault fault, tools::Tensor& tensor, const tools::Tensor& other) {
  const auto change = [&](int64_t i, double factor) {
    if (tensor.type() == DType::kBF16)
      tensor.as<BFloat16>()[i] = toBFloat16(static_cast<float>(toFloat(tensor.as<BFloat16>()[i]) * factor));
    else
      tensor.as<float>()[i] *= static_cast<float>(factor);
  };
  if (fault == Fault::kOther) {
    std::memcpy(tensor.data(), other.data(), static_cast<size_t>(tensor.bytes()));
    return;
  }
  int64_t largest = 0;
  const auto size = [&](int64_t i) {
    return std::abs(tensor.type() == DType::kBF16 ? toFloat(tensor.as<BFloat16>()[i])
                                                  : tensor.as<float>()[i]);
  };
  for (int64_t i = 0; i < tensor.elements(); ++i)
    if (size(i) > size(largest)) largest = i;
  if (fault == Fault::kOneElement) return change(largest, -1);
  const double factor = fault == Fault::kNegated ? -1 : fault == Fault::kZero ? 0 : 1.5;
  for (int64_t i = 0; i < tensor.elements(); ++i) change(i, factor);
}

TEST_CASE("wrong results of one token of every graph are not accepted, whichever output is wrong") {
  int planted = 0;
  for (const Graph& graph : kGraphs) {
    const Program program = compileSmall(graph);
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      LayerData data = runOf(program, 1, seed);
      const LayerData other = runOf(program, 1, seed + 100);
      for (auto& [name, tensor] : data.outputs[0])
        for (Fault fault :
             {Fault::kOther, Fault::kNegated, Fault::kZero, Fault::kScaled, Fault::kOneElement}) {
          const std::vector<std::byte> right(tensor.data(), tensor.data() + tensor.bytes());
          plant(fault, tensor, other.outputs[0].at(name));
          INFO(graph.file << ", seed " << seed << ", " << name << ", fault " << static_cast<int>(fault));
          CHECK(rejected(program, data) == std::vector<std::string>{name});
          std::memcpy(tensor.data(), right.data(), right.size());
          ++planted;
        }
    }
  }
  CHECK(planted >= 1000);
}

}  // namespace
}  // namespace sluice

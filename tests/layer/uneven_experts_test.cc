// Layers whose ranks own different numbers of experts, down to none: what they compute is what one rank with
// all experts computes, bit for bit, however they are compiled and run.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "compiler/report/memory_report.h"
#include "runtime/program/codec.h"
#include "tests/layer/graph_run.h"

namespace sluice {
namespace {

struct Uneven {
  int ranks, experts, topK;
};
// Experts of the ranks: 3 2; 2 2 1; 2 2 2 1; 1 1 0; 1 1 1 0 0.
constexpr Uneven kUneven[] = {{2, 5, 2}, {3, 5, 2}, {4, 7, 3}, {3, 2, 1}, {5, 3, 2}};

// Ranks have 50, 0, 17, 34 and 1 tokens.
constexpr int64_t kTokens[] = {50, 0, 17, 34, 1};

CompileOptions unevenOptions(const Uneven& u, int64_t maxTokens = 50) {
  return {.sets = {{"ep", u.ranks},
                   {"experts", u.experts},
                   {"top_k", u.topK},
                   {"hidden", 40},
                   {"intermediate", 24},
                   {"max_tokens", maxTokens}},
          .cores = 3,
          .slotRows = 16,
          .tile = 16};
}

tools::InputsSpec specOf(const Uneven& u, tools::RoutingKind kind = tools::RoutingKind::kZipf) {
  return {.tokens = {.counts = {kTokens, kTokens + u.ranks}}, .routing = {kind, 1.2}, .seed = 9};
}

Program compileFile(const std::string& path, const Target& target, const CompileOptions& options) {
  auto tables = compile(path, target, options);
  if (!tables) FAIL(tables.error().message);
  auto program = Program::fromBytes(encode(*tables));
  if (!program) FAIL(program.error().message);
  return std::move(*program);
}

void run(const Program& program, const ContextOptions& options, LayerData& data) {
  std::vector<std::string> entries;
  for (const Entry& entry : program.tables().entries) entries.push_back(entry.name);
  const Status ran = runLayer(program, options, data, entries);
  INFO((ran ? "" : ran.error().message));
  REQUIRE(ran.ok());
}

uint64_t bitsOf(const Program& program, const ContextOptions& options, const tools::InputsSpec& spec) {
  LayerData data = makeGraphData(program, spec);
  run(program, options, data);
  return hashOutputs(data);
}

void checkErrors(const Program& program, const tools::InputsSpec& spec) {
  LayerData data = makeGraphData(program, spec);
  runGraph(program, ExecutorKind::kParallel, data);
  for (const tools::OutputError& error : errorsOfGraph(program, data)) {
    INFO(error.name);
    CHECK(error.relative <= 1.5e-2);
  }
}

// The tensors of all ranks one behind the other: the tokens of all, the experts of all.
tools::Tensor joined(const std::vector<tools::TensorMap>& ranks, const std::string& name) {
  std::vector<int64_t> shape = ranks[0].at(name).shape();
  shape[0] = 0;
  for (const tools::TensorMap& rank : ranks) shape[0] += rank.at(name).shape()[0];
  tools::Tensor all(ranks[0].at(name).type(), shape);
  std::byte* to = all.data();
  for (const tools::TensorMap& rank : ranks) {
    const tools::Tensor& part = rank.at(name);
    if (part.bytes() > 0) std::memcpy(to, part.data(), part.bytes());
    to += part.bytes();
  }
  return all;
}

std::vector<tools::TensorMap> joinedAll(const std::vector<tools::TensorMap>& ranks) {
  std::vector<tools::TensorMap> all(1);
  for (const auto& [name, tensor] : ranks[0]) all[0].emplace(name, joined(ranks, name));
  return all;
}

bool sameBits(const tools::Tensor& a, const tools::Tensor& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

TEST_CASE("ranks with different numbers of experts give the bits of one rank that has them all") {
  for (const Uneven& u : kUneven)
    for (auto kind : {tools::RoutingKind::kZipf, tools::RoutingKind::kHalfEmpty}) {
      INFO(u.experts << " experts of " << u.ranks << " ranks");
      const Program program = compileGraph("train.json", unevenOptions(u));
      const Program whole = compileGraph("train.json", unevenOptions({1, u.experts, u.topK}, 256));
      LayerData data = makeGraphData(program, specOf(u, kind));
      LayerData all;
      all.inputs = joinedAll(data.inputs);
      all.outputs = joinedAll(data.outputs);
      run(program, {.threads = 2}, data);
      run(whole, kSerial, all);
      for (const auto& [name, tensor] : all.outputs[0]) {
        INFO(name);
        CHECK(sameBits(joined(data.outputs, name), tensor));
      }
    }
}

TEST_CASE("any number of threads gives the bits of the serial executor") {
  for (const Uneven& u : kUneven) {
    INFO(u.experts << " experts of " << u.ranks << " ranks");
    const Program program = compileGraph("train.json", unevenOptions(u));
    const uint64_t expected = bitsOf(program, kSerial, specOf(u));
    for (int threads : {1, 2, 3}) CHECK(bitsOf(program, {.threads = threads}, specOf(u)) == expected);
  }
}

TEST_CASE("the layer and its gradients are those of the evaluation in double precision") {
  for (const Uneven& u : kUneven) {
    INFO(u.experts << " experts of " << u.ranks << " ranks");
    const Program program = compileGraph("train.json", unevenOptions(u));
    for (auto kind : {tools::RoutingKind::kUniform, tools::RoutingKind::kMasked})
      checkErrors(program, specOf(u, kind));
  }
}

// Two of three ranks have no token, and two of them, one of these included, no row.
TEST_CASE("ranks without tokens and rows take part in a step, however experts are dealt") {
  for (int experts : {6, 5, 2}) {
    const Program program = compileGraph("train.json", unevenOptions({3, experts, 1}));
    for (const std::vector<int64_t>& tokens :
         {std::vector<int64_t>{0, 30, 0}, {30, 0, 0}, {0, 0, 30}, {0, 0, 0}}) {
      const tools::InputsSpec spec{
          .tokens = {.counts = tokens}, .routing = {tools::RoutingKind::kOneHot}, .seed = 4};
      checkErrors(program, spec);
      CHECK(bitsOf(program, {.threads = 2}, spec) == bitsOf(program, kSerial, spec));
    }
  }
}

TEST_CASE("derived gradients have the same bits fused or not, and whatever is kept") {
  for (const Uneven& u : {kUneven[1], kUneven[3]})
    for (const char* graph : {"forward.json", "two_gmms.json", "lora.json", "shared_expert.json"}) {
      INFO(graph << ", " << u.experts << " experts of " << u.ranks << " ranks");
      CompileOptions options = unevenOptions(u);
      options.trainable = std::vector<std::string>{"all"};
      const Program program = compileGraph(graph, options);
      checkErrors(program, specOf(u));
      const uint64_t expected = bitsOf(program, {.threads = 2}, specOf(u));
      options.fuse = {"none"};
      CHECK(bitsOf(compileGraph(graph, options), kSerial, specOf(u)) == expected);
      options.keep = "minimal";
      CHECK(bitsOf(compileGraph(graph, options), {.threads = 3}, specOf(u)) == expected);
    }
}

TEST_CASE("written and derived backward entries agree") {
  for (const Uneven& u : kUneven) {
    CompileOptions options = unevenOptions(u);
    const uint64_t written = bitsOf(compileGraph("train.json", options), kSerial, specOf(u));
    options.trainable = std::vector<std::string>{"all"};
    CHECK(bitsOf(compileGraph("forward.json", options), kSerial, specOf(u)) == written);
  }
}

TEST_CASE("separate cores and slots of two sizes give the same bits") {
  for (const Uneven& u : {kUneven[2], kUneven[3]}) {
    const uint64_t expected = bitsOf(compileGraph("train.json", unevenOptions(u)), kSerial, specOf(u));
    CompileOptions options = unevenOptions(u);
    options.cores = 0;
    Target target;
    target.cubeCores = 2;
    target.vectorCores = 3;
    target.communicationCores = 1;
    const Program apart = compileFile("graphs/moe_ffn/train.json", target, options);
    CHECK(bitsOf(apart, {.threads = 3}, specOf(u)) == expected);
    std::ifstream in("graphs/moe_ffn/train.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const char* node : {"\"name\": \"up_proj\",", "\"name\": \"gate_grad\","}) {
      const size_t at = text.find(node);
      REQUIRE(at != std::string::npos);
      text.insert(at + std::strlen(node), " \"split\": {\"space\": \"rows\", \"size\": 48},");
    }
    const size_t at = text.find("\"name\": \"activation\",");
    REQUIRE(at != std::string::npos);
    text.insert(at + std::strlen("\"name\": \"activation\","),
                " \"split\": {\"space\": \"rows\", \"size\": 16},");
    const std::string path = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "two_sizes.json";
    std::ofstream(path) << text;
    options = unevenOptions(u);
    options.slotRows = 0;
    options.fuse = {"none"};
    const Program grouped = compileGraph(path, options);
    CHECK(std::any_of(grouped.tables().spaces.begin(), grouped.tables().spaces.end(),
                      [](const Space& space) { return space.kind == SpaceKind::kGroups; }));
    CHECK(bitsOf(grouped, {.threads = 2}, specOf(u)) == expected);
  }
}

TEST_CASE("weights that a step makes lie in memory measured in experts") {
  std::ifstream in("tests/layer/made_weights.mlir");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const char* experts : {"experts = 5", "experts = 7", "experts = 2"}) {
    std::string edited = text;
    edited.replace(edited.find("experts = 5"), std::strlen("experts = 5"), experts);
    const std::string path = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "made_weights.mlir";
    std::ofstream(path) << edited;
    INFO(experts);
    CompileOptions options;
    options.slotRows = 16;
    const Program program = compileFile(path, Target{}, options);
    const auto& regions = program.tables().regions;
    CHECK(std::any_of(regions.begin(), regions.end(),
                      [](const Region& region) { return region.extent == Extent::kExperts; }));
    const tools::InputsSpec spec{
        .tokens = {.counts = {40, 0, 64}}, .routing = {tools::RoutingKind::kZipf, 1.0}, .seed = 2};
    checkErrors(program, spec);
    CHECK(bitsOf(program, {.threads = 3}, spec) == bitsOf(program, kSerial, spec));
    CHECK(overPeak(program.tables(), reportMemory(program.tables()).all) <= 1.05);
  }
}

}  // namespace
}  // namespace sluice

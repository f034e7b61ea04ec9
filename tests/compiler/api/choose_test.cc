#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "compiler/api/compile.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kTrainGraph = "graphs/moe_ffn/train.json";

Target cpu() {
  const std::vector<std::string> folders = {"targets"};
  const Expected<Target> target = loadTarget("cpu", folders);
  if (!target) FAIL(target.error().message);
  return *target;
}

CompileOptions layer(int64_t tokens) {
  CompileOptions options;
  options.sets = {{"experts", 16}, {"hidden", 1024}, {"intermediate", 512}, {"max_tokens", tokens}};
  return options;
}

Compiled compiled(const Target& target, const CompileOptions& options) {
  Expected<Compiled> result = compileWithReport(kTrainGraph, target, options);
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}

int32_t slotRows(const Compiled& result) {
  for (const Space& space : (*result.program).spaces)
    if (space.kind == SpaceKind::kRows) return space.slotSize;
  return 0;
}

bool explains(const Compiled& result, const std::string& what, const std::string& why) {
  return std::any_of(result.decisions.begin(), result.decisions.end(), [&](const Decision& decision) {
    return decision.what.find(what) != std::string::npos && decision.why.find(why) != std::string::npos;
  });
}

TEST_CASE("sizes are chosen for the expected routing, and the choice is explained") {
  const Compiled even = compiled(cpu(), layer(512));
  CHECK(explains(even, "tuned for uniform routing", "512 tokens per rank"));
  CHECK(explains(even, "slots of " + std::to_string(slotRows(even)) + " rows", "next best"));
  CompileOptions skewed = layer(512);
  skewed.expect.name = "zipf:1.2";
  skewed.expect.exponent = 1.2;
  const Compiled hot = compiled(cpu(), skewed);
  CHECK(explains(hot, "tuned for zipf:1.2 routing", ""));
  CHECK_THAT((*hot.program).options, Contains("--expect zipf:1.2"));
}

// The priority of a family's lane.
int32_t priorityOf(const Compiled& result, const std::string& lane) {
  for (const Lane& other : (*result.program).lanes)
    if (other.name == lane) return other.priority;
  return -1;
}

TEST_CASE("lanes go in the order that is fastest when simulated, and the choice is explained") {
  const std::vector<std::string> folders = {"targets"};
  const Expected<Target> target = loadTarget("h200", folders);
  REQUIRE(target);
  CompileOptions options;
  options.sets = {{"ep", 8},        {"experts", 128},       {"top_k", 8},
                  {"hidden", 4096}, {"intermediate", 1536}, {"max_tokens", 512}};
  const Compiled fast = compiled(*target, options);
  CHECK(explains(fast, "lanes of entry 'forward': communication, the chain from its beginning",
                 "next communication, the chain from its end"));
  CHECK(explains(fast, "entry 'backward' simulated", "cores"));
  CHECK(priorityOf(fast, "down_proj") < priorityOf(fast, "combine.sum"));
  options.tile = 512;
  const Compiled slow = compiled(cpu(), options);
  CHECK(explains(slow, "lanes of entry 'forward': communication, the chain from its end", "next"));
  CHECK(priorityOf(slow, "combine.sum") < priorityOf(slow, "down_proj"));
}

TEST_CASE("what is given by hand stays as it is") {
  CompileOptions options = layer(512);
  options.slotRows = 48;
  options.tile = 96;
  const Compiled result = compiled(cpu(), options);
  CHECK(slotRows(result) == 48);
  CHECK(explains(result, "slots of 48 rows", "by hand"));
  for (const Family& family : (*result.program).families)
    if (family.op == OpKind::kGmm) CHECK(family.tiling.tileN <= 96);
}

TEST_CASE("a target without rates has its own sizes, and the decision says so") {
  Target target = cpu();
  target.rates.reset();
  const Compiled result = compiled(target, layer(512));
  CHECK(slotRows(result) == 128);
  CHECK(explains(result, "slots of 128 rows", "target 'cpu' has no rates to choose by"));
}

TEST_CASE("shares of other experts than the graph has are an error") {
  CompileOptions options = layer(512);
  options.expect.name = "shares.json";
  options.expect.shares = {1, 2, 3};
  const Expected<Compiled> result = compileWithReport(kTrainGraph, cpu(), options);
  REQUIRE(!result);
  CHECK_THAT(result.error().message,
             Contains("shares.json: error: has shares of 3 experts, but the graph has 16"));
}

TEST_CASE("the widest layer that a graph can say compiles without a hint") {
  CompileOptions options;
  options.sets = {
      {"experts", 1}, {"top_k", 1}, {"hidden", 1 << 20}, {"intermediate", 1 << 19}, {"max_tokens", 64}};
  CHECK((*compiled(cpu(), options).program).families.size() > 5);
  options.sets = {{"experts", 1}, {"top_k", 1}, {"hidden", 1}, {"intermediate", 1}, {"max_tokens", 1}};
  CHECK((*compiled(cpu(), options).program).families.size() > 5);
}

TEST_CASE("a compilation runs every phase once, whatever sizes it looks at") {
  CompileOptions options = layer(512);
  options.trainable = {"all"};
  const Expected<Compiled> result = compileWithReport("graphs/moe_ffn/forward.json", cpu(), options);
  if (!result) FAIL(result.error().message);
  const std::map<std::string, int> expected = {
      {"read", 1},          {"differentiate", 1},    {"weight-rows", 1},  {"encode-kept", 1},
      {"fuse", 1},          {"propagate-splits", 1}, {"check-splits", 1}, {"form-tasks", 1},
      {"read-in-place", 1}, {"shard-tensors", 1},    {"cut-tasks", 1},    {"insert-events", 1},
      {"assign-cores", 1},  {"order-queues", 1},     {"plan-memory", 1},  {"check-tasks", 1}};
  CHECK(result->runs == expected);
}

}  // namespace
}  // namespace sluice

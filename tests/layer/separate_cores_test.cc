// Layers for devices with separate matrix and vector cores: compiled, loaded and run on threads that play
// those cores, they give the bits that unified cores give.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/program/codec.h"
#include "tests/layer/graph_run.h"

namespace sluice {
namespace {

Target smallTarget() {
  Target target;
  target.name = "small";
  target.cores = 3;
  target.slotRows = 32;
  target.tokenSlot = 8;
  target.tiles = {16, 16, 32};
  target.windows = {4, 4, 8, 8, 2};
  return target;
}

Target separate(int cube, int vector, int communication) {
  Target target = smallTarget();
  target.cubeCores = cube;
  target.vectorCores = vector;
  target.communicationCores = communication;
  return target;
}

Program compileFor(const std::string& path, const Target& target, const CompileOptions& options) {
  auto tables = compile(path, target, options);
  if (!tables) FAIL(tables.error().message);
  auto program = Program::fromBytes(encode(*tables));
  if (!program) FAIL(program.error().message);
  return std::move(*program);
}

constexpr tools::InputsSpec kSeparateInputs{
    .tokens = {.ragged = true, .most = 60}, .routing = {tools::RoutingKind::kZipf, 1.2}, .seed = 8};

uint64_t bitsOf(const Program& program, const ContextOptions& options) {
  LayerData data = makeGraphData(program, kSeparateInputs);
  std::vector<std::string> entries;
  for (const Entry& entry : program.tables().entries) entries.push_back(entry.name);
  const Status ran = runLayer(program, options, data, entries);
  INFO((ran ? "" : ran.error().message));
  REQUIRE(ran.ok());
  return hashOutputs(data);
}

CompileOptions layerOf(int ranks) {
  return {.sets = {{"ep", ranks},
                   {"experts", 2 * ranks},
                   {"top_k", 2},
                   {"hidden", 40},
                   {"intermediate", 24},
                   {"max_tokens", 60}}};
}

TEST_CASE("a layer and its gradients have the same bits on unified and on separate cores") {
  for (int ranks : {1, 2, 3}) {
    const std::string train = "graphs/moe_ffn/train.json";
    const uint64_t expected = bitsOf(compileFor(train, smallTarget(), layerOf(ranks)), kSerial);
    for (const Target& target :
         {separate(2, 3, 0), separate(2, 3, 1), separate(1, 5, 4), separate(24, 48, 8)}) {
      const Program program = compileFor(train, target, layerOf(ranks));
      CHECK(bitsOf(program, kSerial) == expected);
      for (int threads : {1, 2, 3, 5}) CHECK(bitsOf(program, {.threads = threads}) == expected);
    }
  }
}

TEST_CASE("a layer with a dense branch, scales and derived gradients has the same bits too") {
  const CompileOptions options{.trainable = {{"all"}}};
  const std::string mixed = "tests/layer/mixed.mlir";
  const uint64_t expected = bitsOf(compileFor(mixed, smallTarget(), options), kSerial);
  for (int communication : {0, 2}) {
    const Program program = compileFor(mixed, separate(2, 4, communication), options);
    CHECK(bitsOf(program, kSerial) == expected);
    CHECK(bitsOf(program, {.threads = 3}) == expected);
  }
}

TEST_CASE("cores that only communicate run all sends and returns and nothing else") {
  const Program program = compileFor("graphs/moe_ffn/train.json", separate(2, 5, 2), layerOf(2));
  const TaskProgram& tables = program.tables();
  CHECK(tables.cores == 0);
  CHECK(tables.cubeCores == 2);
  CHECK(tables.vectorCores == 5);
  for (const Lane& lane : tables.lanes) {
    INFO(lane.name);
    const SpaceKind space = tables.at(lane.space).kind;
    const bool sends = space == SpaceKind::kSends || space == SpaceKind::kReturns;
    CHECK(lane.firstCore == (lane.core == CoreKind::kVector && !sends ? 2 : 0));
    CHECK(lane.seats.size() == (lane.core == CoreKind::kCube || sends ? 2 : 3));
  }
}

TEST_CASE("few cores send and return, and the bits stay the same") {
  const std::string train = "graphs/moe_ffn/train.json";
  for (const Target& target : {smallTarget(), separate(2, 5, 0), separate(2, 5, 3)}) {
    INFO(target.cubeCores << " cube cores, " << target.communicationCores << " for communication");
    const Program all = compileFor(train, target, layerOf(2));
    const uint64_t expected = bitsOf(all, kSerial);
    CompileOptions options = layerOf(2);
    options.sendCores = 2, options.returnCores = 1;
    const Program few = compileFor(train, target, options);
    CHECK(few.tables().options == all.tables().options + " --cores send=2,return=1");
    int limited = 0;
    for (const Lane& lane : few.tables().lanes) {
      INFO(lane.name);
      const SpaceKind space = few.tables().at(lane.space).kind;
      const auto same = std::find_if(all.tables().lanes.begin(), all.tables().lanes.end(),
                                     [&](const Lane& other) { return other.name == lane.name; });
      REQUIRE(same != all.tables().lanes.end());
      CHECK(lane.firstCore == same->firstCore);
      if (space != SpaceKind::kSends && space != SpaceKind::kReturns) {
        CHECK(lane.seats.size() == same->seats.size());
        continue;
      }
      CHECK(lane.seats.size() == (space == SpaceKind::kSends ? 2 : 1));
      limited += lane.seats.size() < same->seats.size() ? 1 : 0;
    }
    CHECK(limited == 4);
    CHECK(bitsOf(few, kSerial) == expected);
    for (int threads : {1, 2, 3, 5}) CHECK(bitsOf(few, {.threads = threads}) == expected);
  }
}

TEST_CASE("a layer for separate cores computes the right results") {
  const Program program = compileFor("graphs/moe_ffn/train.json", separate(2, 4, 1), layerOf(2));
  LayerData data = makeGraphData(program, kSeparateInputs);
  runGraph(program, ExecutorKind::kParallel, data);
  for (const tools::OutputError& error : errorsOfGraph(program, data)) {
    INFO(error.name);
    CHECK(error.relative <= 1.2e-2);
  }
}

}  // namespace
}  // namespace sluice

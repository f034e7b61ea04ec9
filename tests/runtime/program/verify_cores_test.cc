// What verify() says of cores: those of a program, of its families and of its lanes.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>

#include "runtime/program/verify.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/separate_cores.h"

namespace sluice {
namespace {

TaskProgram separate() { return separateCores(buildMoeProgram({}), 2, 4, 1); }

std::string verdict(TaskProgram program) {
  const auto verified = verify(std::move(program));
  return verified ? "accepted" : verified.error().message;
}

// The message of verify() for the program with separate cores after a change, or "accepted".
std::string refusalWithCores(const std::function<void(TaskProgram&)>& change) {
  TaskProgram program = separate();
  change(program);
  return verdict(std::move(program));
}

Lane& lane(TaskProgram& program, const std::string& name) {
  for (Lane& one : program.lanes)
    if (one.name == name) return one;
  FAIL("no lane " << name);
  return program.lanes.front();
}

Family& family(TaskProgram& program, const std::string& name) {
  for (Family& one : program.families)
    if (one.name == name) return one;
  FAIL("no family " << name);
  return program.families.front();
}

TEST_CASE("programs with cube and vector cores verify, for any numbers of them") {
  for (int cube : {1, 3, 24})
    for (int vector : {1, 2, 48})
      for (int communication : {0, 1, 8})
        if (communication < vector)
          CHECK(verdict(separateCores(buildMoeProgram({}), cube, vector, communication)) == "accepted");
}

TEST_CASE("a lane may run on some cores of its kind, unified ones too") {
  TaskProgram program = buildMoeProgram({});
  Lane& last = lane(program, "combine.sum");
  last.seats.erase(last.seats.begin() + 1, last.seats.end());
  last.seats[0].clear();
  for (uint32_t slot = 0; slot < 4; ++slot)
    last.seats[0].push_back(buildMoeProgram({}).lanes[5].seats[slot % 3].front());
  for (uint32_t slot = 0; slot < 4; ++slot) last.seats[0][slot].slot = slot;
  last.rotation = 0;
  REQUIRE(last.name == buildMoeProgram({}).lanes[5].name);
  for (int first : {0, 1, 2}) {
    last.firstCore = first;
    CHECK(verdict(program) == "accepted");
  }
  last.firstCore = 3;
  CHECK(verdict(program) == "lane 'combine.sum' begins at core 3, expected 0 to 2");
}

TEST_CASE("a program has unified cores, or cube and vector cores") {
  CHECK(refusalWithCores([](TaskProgram& p) { p.cores = 4; }) ==
        "cores is 4, but there are 2 cube cores and 4 vector cores, expected 0");
  CHECK(refusalWithCores([](TaskProgram& p) { p.cubeCores = 0; }) == "cube cores is 0, expected 1 to 4096");
  CHECK(refusalWithCores([](TaskProgram& p) { p.vectorCores = 0; }) ==
        "vector cores is 0, expected 1 to 4096");
  CHECK(refusalWithCores([](TaskProgram& p) { p.cubeCores = 4097; }) ==
        "cube cores is 4097, expected 1 to 4096");
  CHECK(refusalWithCores([](TaskProgram& p) { p.vectorCores = -1; }) ==
        "vector cores is -1, expected 1 to 4096");
  CHECK(refusalWithCores([](TaskProgram& p) { p.cubeCores = p.vectorCores = 0; }) ==
        "cores is 0, expected 1 to 4096");
}

TEST_CASE("a family runs on cores that the program has and that can run its op") {
  const auto onKind = [](const char* name, CoreKind kind) {
    return refusalWithCores([=](TaskProgram& p) { family(p, name).core = kind; });
  };
  CHECK(onKind("up_proj", CoreKind::kVector) ==
        "family 'up_proj' of entry 'forward' is for vector cores, but its op gmm runs on cube or unified "
        "cores");
  CHECK(
      onKind("down_weight_grad", CoreKind::kVector) ==
      "family 'down_weight_grad' of entry 'backward' is for vector cores, but its op gmm_weight_grad runs on "
      "cube or unified cores");
  CHECK(
      onKind("swiglu", CoreKind::kCube) ==
      "family 'swiglu' of entry 'forward' is for cube cores, but its op activation runs on vector or unified "
      "cores");
  CHECK(
      onKind("dispatch", CoreKind::kCube) ==
      "family 'dispatch' of entry 'forward' is for cube cores, but its op dispatch runs on vector or unified "
      "cores");
  CHECK(onKind("swiglu", CoreKind::kUnified) ==
        "family 'swiglu' of entry 'forward' is for unified cores, but the program has none");
  CHECK(onKind("swiglu", static_cast<CoreKind>(3)) ==
        "family 'swiglu' of entry 'forward': core kind 3 is not known");
  for (CoreKind kind : {CoreKind::kCube, CoreKind::kVector}) {
    TaskProgram fused = separate();
    Family& one = family(fused, "up_proj");
    one.op = OpKind::kGmmActivation;
    one.core = kind;
    CHECK(verdict(fused).find("its op gmm_activation runs on unified cores") != std::string::npos);
  }
}

TEST_CASE("a lane runs on neighbouring cores of its kind that the program has") {
  const auto changed = [](const std::function<void(Lane&)>& change) {
    return refusalWithCores([&](TaskProgram& p) { change(lane(p, "swiglu")); });  // vector cores 1 to 3
  };
  CHECK(changed([](Lane& l) { l.firstCore = 2; }) ==
        "lane 'swiglu' has 3 seats from core 2 on, but the program has 4 vector cores");
  CHECK(changed([](Lane& l) { l.firstCore = -1; }) == "lane 'swiglu' begins at core -1, expected 0 to 3");
  CHECK(changed([](Lane& l) { l.firstCore = 2147483647; }) ==
        "lane 'swiglu' begins at core 2147483647, expected 0 to 3");
  CHECK(changed([](Lane& l) { l.seats.clear(); }) ==
        "lane 'swiglu' has 0 seats from core 1 on, but the program has 4 vector cores");
  CHECK(changed([](Lane& l) { l.rotation = 3; }) == "lane 'swiglu' has rotation 3, expected 0 to 2");
  CHECK(changed([](Lane& l) { l.rotation = -1; }) == "lane 'swiglu' has rotation -1, expected 0 to 2");
  CHECK(changed([](Lane& l) { l.core = CoreKind::kUnified; }) ==
        "lane 'swiglu' is for unified cores, but the program has none");
  CHECK(changed([](Lane& l) { l.core = static_cast<CoreKind>(7); }) ==
        "lane 'swiglu': core kind 7 is not known");
  CHECK(refusalWithCores([](TaskProgram& p) { lane(p, "up_proj").core = CoreKind::kVector; }) ==
        "task 0 of vector 0 in lane 'up_proj' belongs to family 'up_proj' of entry 'forward', which has "
        "another "
        "entry, space or core kind than the lane");
}

TEST_CASE("a message names the core of a task by its kind and number") {
  CHECK(refusalWithCores([](TaskProgram& p) { lane(p, "swiglu").seats[2][0].tile = 9; }) ==
        "task 0 of vector 3 in lane 'swiglu' is tile 9 of family 'swiglu', which has 1 tiles");
}

}  // namespace
}  // namespace sluice

#include "compiler/api/core_options.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

Target separate() {
  Target target;
  target.name = "separate";
  target.cubeCores = 24;
  target.vectorCores = 48;
  target.communicationCores = 8;
  return target;
}

std::string refusal(const Target& target, const CompileOptions& options) {
  const Status status = checkCoreOptions(target, options);
  return status ? "accepted" : status.error().message;
}

TEST_CASE("cores are given as a number or by kind, and printed as they were given") {
  CompileOptions number;
  CHECK(parseCores("12", number).empty());
  CHECK(number.cores == 12);
  CHECK(number.separate == SeparateCores{});
  CHECK(parseCores("4,send=3,return=1", number).empty());
  CHECK(number.sendCores == 3);
  CHECK(coresText(number) == "4,send=3,return=1");
  for (const char* text : {"cube=24,vector=48", "cube=1", "vector=4096", "cube=2,vector=4,communication=0",
                           "vector=4,communication=3", "cube=2,send=1,return=2", "send=3", "return=1"}) {
    CompileOptions kinds;
    CHECK(parseCores(text, kinds).empty());
    CHECK(kinds.cores == 0);
    CHECK(coresText(kinds) == text);
  }
  CompileOptions swapped;
  CHECK(parseCores("vector=4,cube=2", swapped).empty());
  CHECK(swapped.separate == SeparateCores{2, 4, {}});
}

TEST_CASE("what names no cores is refused with what is expected") {
  for (const char* text : {"",
                           "0",
                           "4097",
                           "-1",
                           "x",
                           "12x",
                           "99999999999",
                           "cube",
                           "cube=",
                           "cube=0",
                           "cube=4097",
                           "cube=2,",
                           ",cube=2",
                           "cube=2,,vector=4",
                           "cube=2,cube=3",
                           "cube=2 vector=4",
                           "cubes=2",
                           "communication=-1",
                           "cube=2;vector=4",
                           "vector=4x",
                           "4,cube=2",
                           "4,5",
                           "send=0",
                           "return=x",
                           "4,send=1,send=2"}) {
    CompileOptions options;
    CHECK(
        parseCores(text, options) ==
        "--cores " + std::string(text) +
            ": expected N, a number from 1 to 4096, or some of cube=N,vector=N,communication=N, and possibly "
            "send=N,return=N");
  }
}

TEST_CASE("a target with other numbers of cores keeps its share of those that only communicate") {
  const auto adjusted = [](const SeparateCores& cores) {
    Target target = separate();
    adjustSeparateCores(target, cores);
    return SeparateCores{target.cubeCores, target.vectorCores, target.communicationCores};
  };
  CHECK(adjusted({}) == SeparateCores{24, 48, 8});
  CHECK(adjusted({2, 0, {}}) == SeparateCores{2, 48, 8});
  CHECK(adjusted({0, 24, {}}) == SeparateCores{24, 24, 4});
  CHECK(adjusted({0, 4, {}}) == SeparateCores{24, 4, 1});
  CHECK(adjusted({0, 1, {}}) == SeparateCores{24, 1, 0});
  CHECK(adjusted({0, 0, 0}) == SeparateCores{24, 48, 0});
  CHECK(adjusted({1, 3, 2}) == SeparateCores{1, 3, 2});
  Target most = separate();
  most.communicationCores = 47;
  adjustSeparateCores(most, {0, 2, {}});
  CHECK(most.communicationCores == 1);
}

TEST_CASE("the cores that send or return are at least one, and no more than may communicate") {
  const auto limited = [](const Target& target, int32_t sends, int32_t returns) {
    CompileOptions options;
    options.sendCores = sends, options.returnCores = returns;
    return refusal(target, options);
  };
  const auto wrong = [](const char* option, int32_t cores, int32_t most) {
    return "error: --cores " + std::string(option) + "=" + std::to_string(cores) + ", expected 1 to " +
           std::to_string(most) + ", the cores that may communicate";
  };
  const Target unified{.name = "cpu", .cores = 6};
  CHECK(limited(unified, 6, 6) == "accepted");
  CHECK(limited(unified, 1, 0) == "accepted");
  CHECK(limited(unified, 7, 0) == wrong("send", 7, 6));
  CHECK(limited(unified, 0, 7) == wrong("return", 7, 6));
  CHECK(limited(unified, -1, 2) == wrong("send", -1, 6));
  CHECK(limited(separate(), 8, 8) == "accepted");
  CHECK(limited(separate(), 9, 8) == wrong("send", 9, 8));
  Target shared = separate();
  shared.communicationCores = 0;
  CHECK(limited(shared, 48, 9) == "accepted");
  CHECK(limited(shared, 4, 49) == wrong("return", 49, 48));
}

TEST_CASE("cores that a target has not are refused, and so is what none of its cores can run") {
  CompileOptions number, kinds, fused;
  number.cores = 4;
  kinds.separate = {2, 4, {}};
  CHECK(refusal(separate(), {}) == "accepted");
  CHECK(refusal(separate(), kinds) == "accepted");
  CHECK(refusal(Target{}, number) == "accepted");
  CHECK(refusal(separate(), number) ==
        "error: target 'separate' has separate cube and vector cores, expected cube=N,vector=N, not 4");
  CHECK(refusal(Target{.name = "cpu"}, kinds) ==
        "error: the cores of target 'cpu' are unified, expected their number, not cube=2,vector=4");
  Target few = separate();
  few.communicationCores = 48;
  CHECK(refusal(few, {}) == "error: 48 of 48 vector cores are reserved for communication, expected 0 to 47");
  few = separate();
  few.vectorCores = 5000;
  CHECK(refusal(few, {}) == "error: the number of vector cores is 5000, expected 1 to 4096");
  for (const char* word : {"all", "activation", "activation-grad"}) {
    fused.fuse = {"scale", word};
    CHECK(refusal(separate(), fused) ==
          "error: cannot fuse " + std::string(word) +
              " for target 'separate', whose products run on cube cores and all else on "
              "vector cores, expected none or scale");
    CHECK(refusal(Target{}, fused) == "accepted");
  }
  for (const char* word : {"none", "scale"}) {
    fused.fuse = {word};
    CHECK(refusal(separate(), fused) == "accepted");
  }
}

}  // namespace
}  // namespace sluice

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>

#include "runtime/program/codec.h"
#include "runtime/program/op_table.h"
#include "runtime/program/verify.h"
#include "tests/runtime/program/random_program.h"
#include "tests/testing/linear_program.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

void checkRoundTrip(const TaskProgram& program) {
  const Expected<TaskProgram> decoded = decode(encode(program));
  REQUIRE((decoded.ok() ? "" : decoded.error().message) == "");
  REQUIRE(*decoded == program);
}

TEST_CASE("a decoded program equals the one that was encoded") {
  checkRoundTrip({});
  checkRoundTrip(smallProgram());
  checkRoundTrip(raggedProgram());
  checkRoundTrip(buildMoeProgram({}));
  for (uint32_t seed = 0; seed < 500; ++seed) {
    INFO("seed " << seed);
    checkRoundTrip(randomProgram(seed));
  }
}

TEST_CASE("equal programs have equal bytes, different programs have different bytes") {
  CHECK(encode(smallProgram()) == encode(smallProgram()));
  for (uint32_t seed = 0; seed < 100; ++seed)
    CHECK(encode(randomProgram(seed)) == encode(randomProgram(seed)));
  TaskProgram other = smallProgram();
  other.families[1].signals[1] = {1};
  CHECK(encode(other) != encode(smallProgram()));
}

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file("tests/runtime/program/golden/" + name + ".slp", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Files of every minor version lie in the repository: they must stay readable, and what is written must stay
// the same for as long as the version is the same. SLUICE_WRITE_GOLDEN=FILE writes one for a new version.
TEST_CASE("golden files decode, and that of the newest version encodes to the same bytes") {
  if (const char* path = std::getenv("SLUICE_WRITE_GOLDEN"))
    REQUIRE(writeProgram(sixteenBitsProgram(), path).ok());
  for (const std::string version : {"1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9",
                                    "1.10", "1.11", "1.12", "1.13", "1.14", "1.15"}) {
    INFO(version);
    const std::vector<std::byte> bytes = golden("v" + version);
    Expected<TaskProgram> program = decode(bytes);
    REQUIRE((program.ok() ? "" : program.error().message) == "");
    const bool isSame = encode(*program) == bytes;
    // absent operands stood at the ends of lists
    for (Family& family : program->families)
      if (version == "1.6") trimOperands(family);
    CHECK(*program == (version == "1.15"   ? sixteenBitsProgram()
                       : version == "1.14" ? factorProgram()
                       : version == "1.13" ? powersProgram()
                       : version == "1.12" ? floatWeightsProgram()
                       : version == "1.11" ? buildMoeProgram({.weightsAct = true})
                       : version == "1.10" ? buildMoeProgram({.inPlace = true})
                       : version == "1.9"  ? roundedProgram()
                       : version == "1.8"  ? codesProgram()
                       : version == "1.7"  ? placedProgram()
                       : version == "1.6"  ? buildLinearProgram({})
                       : version == "1.5"  ? shardedProgram()
                       : version == "1.4"  ? activationProgram()
                       : version == "1.3"  ? raggedProgram()
                                           : smallProgram()));
    CHECK(isSame == (version == "1.15"));
  }
}

// Up to 1.3 the activation stood in the flags, and waits and signals in every record. The file is of that
// version's compiler, of geglu.json.
TEST_CASE("the activations and the waits of an older file are read into the fields of its families") {
  Expected<TaskProgram> program = decode(golden("v1.3-activations"));
  REQUIRE((program.ok() ? "" : program.error().message) == "");
  int found = 0;
  for (const Family& family : program->families) {
    if (!findInfo(family.op).usesActivation()) continue;
    ++found;
    CHECK(family.tiling.activation == ActivationKind::kGeglu);
    CHECK(family.tiling.flags == (family.op == OpKind::kGmmActivationGrad ? 4 : 0));
  }
  CHECK(found > 1);
  size_t waits = 0, signals = 0;
  for (const Family& family : program->families)
    waits += family.waits.size(), signals += family.signals.size();
  CHECK(waits == 10);
  CHECK(signals == 10);
  const Expected<TaskProgram> again = decode(encode(*program));
  REQUIRE(again.ok());
  CHECK(*again == *program);
  CHECK(verify(std::move(*program)).ok());
}

TEST_CASE("a lane that is dealt by the formula takes no bytes for its tasks, and any other does") {
  TaskProgram program = buildMoeProgram({.maxTokens = 256, .window = 16});
  const size_t dealt = encode(program).size();
  size_t tasks = 0;
  for (const auto& seat : program.lanes[1].seats) tasks += seat.size();
  std::swap(program.lanes[1].seats[0][0], program.lanes[1].seats[1][0]);
  CHECK(encode(program).size() >= dealt + tasks * sizeof(TaskRecord));
  checkRoundTrip(program);
}

TEST_CASE("an older file whose records of one family disagree is refused") {
  const Expected<TaskProgram> program = decode(golden("v1.3-disagreement"));
  REQUIRE_FALSE(program.ok());
  CHECK(program.error().message ==
        "lane 1 'up': task 0 of seat 1 is up[0,1] and signals 'up.done' and 'arrived', expected 'up.done' as "
        "for up[0,0], the first task of family 'up'");
}

TEST_CASE("task records lie in the file as they lie in memory") {
  TaskProgram program = smallProgram();
  std::swap(program.lanes[1].seats[0], program.lanes[1].seats[1]);  // else they follow from the formula
  const std::vector<std::byte> bytes = encode(program);
  const auto seat = std::as_bytes(std::span(program.lanes[1].seats[0]));
  CHECK(std::search(bytes.begin(), bytes.end(), seat.begin(), seat.end()) != bytes.end());
}

}  // namespace
}  // namespace sluice

#include "tools/cli/core_name.h"

#include <catch2/catch.hpp>

#include "tests/testing/moe_program.h"
#include "tests/testing/separate_cores.h"

namespace sluice::tools {
namespace {

void checkUnknown(const TaskProgram& program, const char* name, const std::string& expected) {
  INFO(name);
  REQUIRE_FALSE(findCore(program, name).ok());
  CHECK(findCore(program, name).error().message ==
        "found core '" + std::string(name) + "', expected " + expected);
}

TEST_CASE("a core is named by its number, or by its kind and number") {
  const TaskProgram program = buildMoeProgram({});
  CHECK(findCore(program, "2")->number == 2);
  CHECK_FALSE(findCore(program, "2")->kind.has_value());
  CHECK(findCore(program, "unified2")->number == 2);
  CHECK(findCore(program, "unified2")->kind == CoreKind::kUnified);
  for (const char* name : {"3", "-1", "", "unified", "unified3", "cube0", "vector0", "unified 1", "1cube",
                           "99999999999", "cube-1"})
    checkUnknown(program, name, "0 to 2, or unified0 to unified2");
  CHECK(coreCounts(program) == "3 cores");
}

TEST_CASE("with separate cores, a number alone names a core of every kind that has it") {
  const TaskProgram program = separateCores(buildMoeProgram({}), 2, 4);
  for (const char* name : {"3", "vector3"}) CHECK(findCore(program, name)->number == 3);
  CHECK(findCore(program, "vector3")->kind == CoreKind::kVector);
  CHECK(findCore(program, "cube1")->kind == CoreKind::kCube);
  for (const char* name : {"4", "cube2", "vector4", "unified0"})
    checkUnknown(program, name, "0 to 3, or cube0 to cube1 or vector0 to vector3");
  CHECK(coreCounts(program) == "2 cube cores, 4 vector cores");
}

}  // namespace
}  // namespace sluice::tools

#include "tools/cli/core_name.h"

#include <catch2/catch.hpp>

#include "tests/testing/moe_program.h"

namespace sluice::tools {
namespace {

TEST_CASE("a core is named by its number, or by a kind that lanes run on and its number") {
  TaskProgram program = buildMoeProgram({});
  program.lanes[0].core = CoreKind::kCube;
  for (const char* name : {"2", "unified2", "cube2"}) {
    INFO(name);
    REQUIRE(findCore(program, name).ok());
    CHECK(*findCore(program, name) == 2);
  }
  for (const char* name :
       {"3", "-1", "", "cube", "cube3", "vector0", "cube 1", "1cube", "99999999999", "cube-1"}) {
    INFO(name);
    REQUIRE_FALSE(findCore(program, name).ok());
    CHECK(findCore(program, name).error().message.find("unified0 to unified2 or cube0 to cube2") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::tools

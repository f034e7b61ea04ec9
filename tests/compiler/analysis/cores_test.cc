#include <catch2/catch.hpp>

#include "compiler/analysis/lanes.h"
#include "runtime/program/op_table.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/separate_cores.h"

namespace sluice {
namespace {

TEST_CASE("tasks are dealt to the cores that the lanes of a valid program have") {
  for (int communication : {0, 1, 3}) {
    const TaskProgram program = separateCores(buildMoeProgram({}), 2, 4, communication);
    for (uint32_t f = 0; f < program.families.size(); ++f) {
      INFO(program.families[f].name);
      const CoreRange cores = coresFor(program, program.families[f], {.reserved = communication});
      CHECK(cores ==
            CoreRange{program.lanes[f].firstCore, static_cast<int32_t>(program.lanes[f].seats.size())});
      CHECK(program.families[f].core == findInfo(program.families[f].op).core);
    }
  }
}

TEST_CASE("sends and returns get the first of the cores that may communicate, as many as are allowed") {
  const auto check = [](const TaskProgram& program, int32_t reserved, int32_t sends, int32_t returns) {
    for (const Family& family : program.families) {
      INFO(family.name);
      const SpaceKind space = program.at(family.space).kind;
      const CoreRange all = coresFor(program, family, {.reserved = reserved}),
                      some = coresFor(program, family, {reserved, 2, 1});
      CHECK(some.first == all.first);
      CHECK(some.count == (space == SpaceKind::kSends     ? sends
                           : space == SpaceKind::kReturns ? returns
                                                          : all.count));
    }
  };
  check(buildMoeProgram({.cores = 3}), 0, 2, 1);
  check(buildMoeProgram({.cores = 1}), 0, 1, 1);
  check(separateCores(buildMoeProgram({}), 2, 5), 0, 2, 1);
  check(separateCores(buildMoeProgram({}), 2, 5), 3, 2, 1);
}

TEST_CASE("unified cores share all tasks, and so do vector cores of which all would only communicate") {
  const TaskProgram unified = buildMoeProgram({.cores = 3});
  for (const Family& family : unified.families)
    CHECK(coresFor(unified, family, {.reserved = 2}) == CoreRange{0, 3});
  const TaskProgram separate = separateCores(buildMoeProgram({}), 2, 4);
  for (const Family& family : separate.families)
    CHECK(coresFor(separate, family, {.reserved = 4}) ==
          CoreRange{0, family.core == CoreKind::kCube ? 2 : 4});
}

}  // namespace
}  // namespace sluice

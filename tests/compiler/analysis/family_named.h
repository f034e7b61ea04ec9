// A family of the program of docs/SCHEDULE.md, by its name.
#pragma once

#include <string_view>

#include "tests/testing/moe_program.h"

namespace sluice {

inline FamilyId familyNamed(const TaskProgram& program, uint32_t entry, std::string_view name) {
  for (uint32_t f = 0; f < program.families.size(); ++f)
    if (program.families[f].entry.value == entry && program.families[f].name == name) return FamilyId{f};
  return {};
}

}  // namespace sluice

// The differences between two programs, for people.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

// More differences than this are counted only, in the last line.
inline constexpr size_t kMaxDifferences = 100;

// One line per difference, in the words of the text form; empty if and only if the programs are equal:
//   event forward/up_done: [rows] counts tasks to constant(2) -> [rows] counts tasks to constant(3)
//   lane forward/up seat 1 task 0: up[0,1] waits arrived signals none -> (nothing)
//   family backward/extra: only in the second
// A record is compared with the record of the same name, so that one more record does not change all that
// follow.
std::vector<std::string> diffPrograms(const TaskProgram& a, const TaskProgram& b);

}  // namespace sluice

// What holds for every program that a reader accepts.
#pragma once

#include "runtime/program/program.h"

namespace sluice::fuzz {

// Aborts unless the program encodes and decodes to itself, prints and parses to itself, prints as JSON, and
// is verified or refused with one line.
void requireProgram(const TaskProgram& program);

}  // namespace sluice::fuzz

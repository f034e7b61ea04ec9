// An oracle for verify(): runs a program's tables on a small random routing, byte by byte, without any of
// the verifier's reasoning.
//
// Every byte of every region and of the caller's memory at every rank carries the buffer that it was last
// written for. A task runs when it heads its lane's seat and its events are reached; of the tasks that may
// run one is chosen at random, except that a random part of one family is held back as long as anything
// else can run. Found are: no progress, reads of bytes that are not (or no longer) of the buffer, second
// writes, outputs not written, accesses out of bounds, events with no index or not exactly reached, and
// anything that reaches a rank which has finished the entry.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/program/program.h"

namespace sluice {

// What went wrong in one run of all entries, or "". `hold` picks the family that is held back; different
// values hold back different ones. The program must be one that verify() accepts, or close to one: ids in
// range and sizes small.
std::string runOracle(const TaskProgram& program, uint64_t seed, uint32_t hold);

}  // namespace sluice

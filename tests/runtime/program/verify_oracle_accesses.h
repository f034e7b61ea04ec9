// What a task reads and writes, byte by byte: the table of ops in program.h as footprints.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/program/program.h"
#include "tests/runtime/program/verify_oracle_routing.h"

namespace sluice {

// `bytes` bytes of element `index` of the buffer at `rank`, from byte `begin` on. An element is one of the
// first dimension, be it of run-time extent or fixed.
struct OracleAccess {
  int rank;
  BufferId buffer;
  int64_t index, begin, bytes;
  bool write;
};

// Visits the reads of a task of `rank`, then its writes. Its family must be of a space of its op.
void forEachAccess(const TaskProgram& program, const std::vector<OracleRank>& routing, int rank,
                   const Family& family, int slot, int tile,
                   const std::function<void(const OracleAccess&)>& visit);

}  // namespace sluice

// StepTables: a step of one rank as the persistent kernel of ops/gpu takes it: a record for each task, in
// lists by core and lane, and what each record does. A task of the program that is larger than a tile becomes
// several records, one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/exec/lane_cursor.h"

namespace sluice {

class GpuBackend;
class Staging;

struct MemoryRange {
  const void* data = nullptr;
  size_t bytes = 0;
};

// A value; addresses are device addresses.
struct StepTables {
  int rank = 0;
  std::vector<gpu::Matrix> matrices;
  std::vector<gpu::ChainTask> records;
  std::vector<gpu::Product> products;
  std::vector<gpu::WeightGrad> weightGrads;
  std::vector<gpu::RowCopy> rowCopies;
  std::vector<gpu::RowWork> rowWorks;
  std::optional<ActivationKind> activation;  // of all products and rowWorks that have one; none: several
  std::vector<uint32_t> lists;               // as gpu::Chain
  int cores = 0;
  int lanes[gpu::kRoles] = {};
  std::vector<uint64_t*> counters;  // by rank
  std::vector<MemoryRange> memory;  // all that tasks of this rank touch, at any rank
  std::vector<LaneCursor> cursors;  // by list: at its first task; of a list without tasks done
  std::vector<uint8_t> isFirst;     // by record: whether a task begins with it
  int64_t tasks = 0;                // of the program
};

// The tables of a step whose addresses and routing are staged. `progress` gets the positions of cursors, now
// and in reports. Error: of a tensor map.
Expected<StepTables> makeTables(const Step& step, const Staging& staged, GpuBackend& backend,
                                LaneProgress& progress);

}  // namespace sluice

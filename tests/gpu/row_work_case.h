// A random case for copies of rows and work on rows in the persistent kernel: comm copies the operands into
// place, math does the work, and comm copies the results away. Each part is several tasks, which wait for all
// of the part before.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/abi/gpu/row_plan.h"
#include "tests/gpu/chain_run.h"
#include "tests/gpu/host_rows.h"
#include "tests/gpu/row_work_reference.h"

namespace sluice::gpu {

class RowWorkCase {
 public:
  explicit RowWorkCase(uint64_t seed);
  RowWorkCase(uint64_t seed, const std::vector<RowWorkSizes>& works);

  // Tiles do not matter.
  int tileColumns() const { return 256; }
  // Runs the kernel on a backend with such tiles. Returns what is wrong: an error of the backend, a report,
  // or a wrong value; empty: nothing.
  std::string run(GpuBackend& backend, double timeoutSeconds);

  // All results of the last run.
  std::vector<std::vector<std::byte>> results() const;

 private:
  // Row i of `to` is row index[i] / divisor of `from`.
  struct Copied {
    HostRows from, to;
    std::vector<int32_t> index;  // or none
    int32_t divisor;
    int step;  // rows that a row of the task counts
  };
  struct Work {
    RowWorkSizes sizes;
    std::vector<Copied> ins;   // from a source; without columns: null
    std::vector<Copied> outs;  // from the result
    std::vector<int32_t> positions;
    std::vector<HostRows> wanted;              // of ins
    std::vector<std::vector<double>> starts;   // of the first result, where it is added to
    std::vector<std::vector<double>> results;  // by result
  };

  Work countWork(const RowWorkSizes& sizes);
  Copied copied(int elementBytes, int rows, int columns, int step);
  HostRows::Layout layoutOf(int elementBytes, int rows, int columns, bool isList);
  void addTasks(Work& work, uint32_t event);
  uint32_t addCopies(int lane, Copied& copied, EventWait wait, uint32_t event);
  uint32_t addWork(Work& work, EventWait wait, uint32_t event);
  int between(int low, int high);

  std::mt19937 random_;
  std::vector<Work> works_;
  ChainRun tasks_;
};

}  // namespace sluice::gpu

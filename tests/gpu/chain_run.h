// What cases for the kernel of chained products share: matrices, and tasks that a backend runs: the hardware
// model, or a GPU.
//
// Cases are in memory of the host. A run copies them to that of the device, and back.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/gpu/gpu_backend.h"
#include "tests/gpu/device_copy.h"

namespace sluice::gpu {

inline constexpr int kSlotRows = 128;
// The event that was signalled before a run, and how often. Events of a case follow it.
inline constexpr uint32_t kStart = 0;
inline constexpr uint64_t kStarted = 5;

uint16_t toBf16(float value);
float fromBf16(uint16_t bits);

// Under a sanitizer a case takes ten times as long.
constexpr uint64_t casesOf(uint64_t cases) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return cases / 10;
#else
  return cases;
#endif
}

// How far rows lie apart. Mapped: `spare` 16-byte parts further than a multiple of 16 bytes; else `spare`
// elements further than they are long, and the first begins as many after a multiple of 16 bytes.
struct RowGaps {
  int spare = 0;
  bool isMapped = true;
};
RowGaps drawGaps(std::mt19937& random);

// A matrix [outers, rows, columns] of bf16, with NaN between rows and around them. A resource: operands point
// into it.
class HostMatrix {
 public:
  HostMatrix(int outers, int rows, int columns, RowGaps gaps);

  uint16_t& at(int outer, int row, int column);
  double value(int outer, int row, int column) const;
  // As a task has it, for boxes of so many rows.
  MappedMatrix operand(int boxRows) const;
  HostRange memory() const { return rangeOf(elements_); }
  // With numbers in [-1, 1).
  void fill(std::mt19937& random);
  // Makes all elements NaN.
  void clear();
  // Whether what lies between rows and around them is what it was.
  bool hasKeptGaps() const;

  const int outers, rows, columns;
  int pitch() const { return pitch_; }                          // elements
  const uint16_t* data() const { return &elements_[begin()]; }  // of the first row
  const std::vector<uint16_t>& elements() const { return elements_; }

 private:
  size_t begin() const { return isMapped_ ? 0 : static_cast<size_t>(spare_); }

  const int spare_;
  const bool isMapped_;
  int pitch_;
  std::vector<uint16_t> elements_;
};

// What a task waits for and signals.
struct TaskEvents {
  EventWait waits[kMaxWaits];
  uint32_t event;
  uint32_t amount;
};

// Tasks in lanes of three cores.
class ChainRun {
 public:
  explicit ChainRun(int lanesPerCore = 2) : lanesPerCore_(lanesPerCore) {}

  // Puts a task into that lane of some core: of load, or of comm if it copies rows. All that have an
  // activation have the same.
  void add(int lane, const Product& product, const TaskEvents& events, std::mt19937& random);
  void add(int lane, const WeightGrad& grad, const TaskEvents& events, std::mt19937& random);
  void add(int lane, const RowWork& work, const TaskEvents& events, std::mt19937& random);
  void add(int lane, const RowCopy& copy, const TaskEvents& events, std::mt19937& random);
  // Puts a task behind the one that was added last, whatever the order of others.
  void addNext(const Product& product, const TaskEvents& events);
  // After the last task: puts each lane's tasks in some order. Events are those below `events`.
  void shuffle(uint32_t events, std::mt19937& random);
  // Makes one signalling task signal nothing. Returns its event.
  uint32_t loseSignal();

  // Runs the kernel. `memory` is all that tasks touch. Returns what is wrong: an error of the backend, a
  // report, or an event that has another count than the tasks signal; empty: nothing.
  std::string run(GpuBackend& backend, const std::vector<MappedMatrix>& matrices,
                  std::vector<HostRange> memory, double timeoutSeconds);
  const std::vector<StuckReport>& reports() const { return reports_; }  // of the last run

 private:
  void add(int lane, TaskKind kind, size_t work, const TaskEvents& events, std::mt19937& random);
  static ChainTask taskOf(TaskKind kind, size_t work, const TaskEvents& events);
  std::string describeReports() const;

  const int lanesPerCore_;                                  // of load; those of comm follow
  std::vector<std::vector<std::vector<ChainTask>>> lanes_;  // of tasks that stay one behind the other
  size_t last_ = 0;                                         // lane to which a task was added
  StepTables tables_;                                       // in terms of the host's memory
  std::vector<uint64_t> starts_;                            // of the counters
  std::vector<StuckReport> reports_;
};

}  // namespace sluice::gpu

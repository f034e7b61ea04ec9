// What cases for the kernel of chained products share: matrices, and tasks that the model runs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ops/gpu/chain_plan.h"

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

// A matrix [outers, rows, columns] of bf16, with NaN between rows and around them. A resource: maps point
// into it.
class HostMatrix {
 public:
  HostMatrix(int outers, int rows, int columns, RowGaps gaps);

  uint16_t& at(int outer, int row, int column);
  double value(int outer, int row, int column) const;
  Matrix operand(int boxRows);
  void registerAll() const;
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

// Tasks in lanes of three cores. A resource: it has the memory of the kernel's arguments.
class ChainRun {
 public:
  explicit ChainRun(int lanesPerCore = 2) : lanesPerCore_(lanesPerCore) {}

  // Puts a task into that lane of some core: of load, or of comm if it copies rows.
  void add(int lane, const Product& product, const TaskEvents& events, std::mt19937& random);
  void add(int lane, const WeightGrad& grad, const TaskEvents& events, std::mt19937& random);
  void add(int lane, const RowWork& work, const TaskEvents& events, std::mt19937& random);
  void add(int lane, const RowCopy& copy, const TaskEvents& events, std::mt19937& random);
  // Puts a task behind the one that was added last, whatever the order of others.
  void addNext(const Product& product, const TaskEvents& events);
  // After the last task: puts each lane's tasks in some order. Events are those below `events`.
  void shuffle(uint32_t events, std::mt19937& random);
  // Of some task that signals, which then will not. Returns its event.
  uint32_t loseSignal();

  // Runs the kernel with tiles of so many columns. Returns what is wrong: what the model found, a report, or
  // an event that has another count than the tasks signal.
  std::string run(const std::vector<Matrix>& matrices, int columns, int blocks, uint64_t seed);
  const std::vector<StuckReport>& reports() const { return reports_; }  // of the last run

 private:
  void add(int lane, TaskKind kind, size_t work, const TaskEvents& events, std::mt19937& random);
  static ChainTask taskOf(TaskKind kind, size_t work, const TaskEvents& events);
  std::string describeReports() const;

  const int lanesPerCore_;                                  // of load; those of comm follow
  std::vector<std::vector<std::vector<ChainTask>>> lanes_;  // of tasks that stay one behind the other
  size_t last_ = 0;                                         // lane to which a task was added
  std::vector<ChainTask> tasks_;
  std::vector<Product> products_;
  std::vector<WeightGrad> weightGrads_;
  std::vector<RowCopy> rowCopies_;
  std::vector<RowWork> rowWorks_;
  std::vector<uint32_t> lists_, heads_;
  std::vector<uint64_t> counters_, starts_;
  std::vector<StuckReport> reports_;
  uint64_t abort_ = 0;
};

}  // namespace sluice::gpu

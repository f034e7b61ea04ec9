#include "tests/gpu/chain_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ops/gpu/model/launch.h"
#include "tests/gpu/chain_kernel.h"

namespace sluice::gpu {
namespace {

constexpr uint16_t kNaN = 0x7FD5;
constexpr int kCores = 3;
constexpr int kCommLanes = 2;            // per core
constexpr uint64_t kLimit = 30'000'000;  // ns of the model's time

template <class T>
void registerVector(const std::vector<T>& values) {
  model::registerGlobal(values.data(), values.size() * sizeof(T));
}

}  // namespace

uint16_t toBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

RowGaps drawGaps(std::mt19937& random) {
  const bool isMapped = random() % 5 != 0;
  return {static_cast<int>(random() % 3), isMapped};
}

float fromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

HostMatrix::HostMatrix(int numOuters, int numRows, int numColumns, RowGaps gaps)
    : outers(numOuters),
      rows(numRows),
      columns(numColumns),
      spare_(gaps.spare),
      isMapped_(gaps.isMapped),
      pitch_(isMapped_ ? (columns + 7) / 8 * 8 + 8 * spare_ : columns + spare_) {
  elements_.assign(static_cast<size_t>(pitch_) * static_cast<size_t>(outers * rows + 16), kNaN);
}

uint16_t& HostMatrix::at(int outer, int row, int column) {
  return elements_[begin() + static_cast<size_t>(outer * rows + row) * static_cast<size_t>(pitch_) +
                   static_cast<size_t>(column)];
}

double HostMatrix::value(int outer, int row, int column) const {
  return fromBf16(const_cast<HostMatrix*>(this)->at(outer, row, column));
}

Matrix HostMatrix::operand(int boxRows) {
  const int64_t pitch = 2 * pitch_;
  uint16_t* const first = &elements_[begin()];
  return {isMapped_ ? model::mapOf(first, 2, columns, rows, outers, pitch, pitch * rows, 64, boxRows)
                    : TensorMap{},
          reinterpret_cast<std::byte*>(first),
          pitch,
          pitch * rows,
          columns,
          rows,
          isMapped_};
}

void HostMatrix::registerAll() const { registerVector(elements_); }

void HostMatrix::fill(std::mt19937& random) {
  std::uniform_real_distribution<float> values(-1, 1);
  for (int o = 0; o < outers; ++o)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) at(o, r, c) = toBf16(values(random));
}

void HostMatrix::clear() { std::ranges::fill(elements_, kNaN); }

bool HostMatrix::hasKeptGaps() const {
  for (size_t i = 0; i < elements_.size(); ++i) {
    const size_t place = i - begin();
    const bool isGap = i < begin() || static_cast<int>(place % static_cast<size_t>(pitch_)) >= columns ||
                       static_cast<int>(place / static_cast<size_t>(pitch_)) >= outers * rows;
    if (isGap && elements_[i] != kNaN) return false;
  }
  return true;
}

void ChainRun::add(int lane, const Product& product, const TaskEvents& events, std::mt19937& random) {
  add(lane, TaskKind::kProduct, products_.size(), events, random);
  products_.push_back(product);
}

void ChainRun::add(int lane, const WeightGrad& grad, const TaskEvents& events, std::mt19937& random) {
  add(lane, TaskKind::kWeightGrad, weightGrads_.size(), events, random);
  weightGrads_.push_back(grad);
}

void ChainRun::add(int lane, const RowWork& work, const TaskEvents& events, std::mt19937& random) {
  add(lane, TaskKind::kRowWork, rowWorks_.size(), events, random);
  rowWorks_.push_back(work);
}

void ChainRun::add(int lane, const RowCopy& copy, const TaskEvents& events, std::mt19937& random) {
  add(lanesPerCore_ + lane, TaskKind::kRowCopy, rowCopies_.size(), events, random);
  rowCopies_.push_back(copy);
}

void ChainRun::add(int lane, TaskKind kind, size_t work, const TaskEvents& events, std::mt19937& random) {
  const auto lanes = static_cast<size_t>(lanesPerCore_ + kCommLanes);
  lanes_.resize(kCores * lanes);
  last_ = random() % kCores * lanes + static_cast<size_t>(lane);
  lanes_[last_].push_back({taskOf(kind, work, events)});
}

void ChainRun::addNext(const Product& product, const TaskEvents& events) {
  lanes_[last_].back().push_back(taskOf(TaskKind::kProduct, products_.size(), events));
  products_.push_back(product);
}

ChainTask ChainRun::taskOf(TaskKind kind, size_t work, const TaskEvents& events) {
  ChainTask task = {kind, static_cast<uint32_t>(work), 0, {}, {{events.event, events.amount, 0}}};
  std::ranges::copy(events.waits, task.waits);
  return task;
}

void ChainRun::shuffle(uint32_t events, std::mt19937& random) {
  for (auto& lane : lanes_) {
    std::shuffle(lane.begin(), lane.end(), random);
    lists_.push_back(static_cast<uint32_t>(tasks_.size()));
    for (const auto& sequence : lane) tasks_.insert(tasks_.end(), sequence.begin(), sequence.end());
  }
  lists_.push_back(static_cast<uint32_t>(tasks_.size()));
  starts_.assign(static_cast<size_t>(events) * kCounterStride, 0);
  starts_[kStart * kCounterStride] = kStarted;
}

uint32_t ChainRun::loseSignal() {
  const auto found =
      std::ranges::find_if(tasks_, [](const ChainTask& task) { return task.signals[0].amount > 0; });
  found->signals[0].amount = 0;
  return found->signals[0].event;
}

std::string ChainRun::run(const std::vector<Matrix>& matrices, int columns, int blocks, uint64_t seed) {
  heads_ = lists_;
  counters_ = starts_;
  reports_.assign(static_cast<size_t>(blocks * kRoles), {});
  abort_ = 0;
  registerVector(matrices);
  registerVector(tasks_);
  registerVector(products_);
  registerVector(weightGrads_);
  registerVector(rowCopies_);
  registerVector(rowWorks_);
  registerVector(lists_);
  registerVector(heads_);
  registerVector(counters_);
  registerVector(reports_);
  model::registerGlobal(&abort_, sizeof(abort_));
  uint64_t* const counters = counters_.data();
  model::registerGlobal(&counters, sizeof(counters));
  Launch launch{.partitions = 1};
  launch.chains[0] = {.matrices = matrices.data(),
                      .tasks = tasks_.data(),
                      .products = products_.data(),
                      .weightGrads = weightGrads_.data(),
                      .rowCopies = rowCopies_.data(),
                      .rowWorks = rowWorks_.data(),
                      .lists = lists_.data(),
                      .cores = kCores,
                      .lanes = {lanesPerCore_, kCommLanes},
                      .counters = &counters,
                      .rank = 0,
                      .abort = &abort_,
                      .heads = heads_.data(),
                      .reports = reports_.data(),
                      .limit = kLimit};
  const std::string wrong = runChainKernel({.blocks = blocks, .seed = seed}, columns, launch);
  if (!wrong.empty()) return "the model: " + wrong;
  if (abort_ != 0) return describeReports();
  std::vector<uint64_t> ends = starts_;
  for (const ChainTask& task : tasks_)
    for (const EventSignal& each : task.signals) ends[each.event * kCounterStride] += each.amount;
  return counters_ == ends ? "" : "an event has another count than its tasks signal";
}

std::string ChainRun::describeReports() const {
  std::string text = "the kernel:";
  for (const StuckReport& each : reports_) {
    if (each.stuck == Stuck::kEvent)
      text += fmt::format(" core {} lane {} waits for event {} ({} of {}) before task {};", each.core,
                          each.lane, each.event, each.have, each.need, each.task);
    else if (each.stuck != Stuck::kNo)
      text += fmt::format(" core {} waits for a free {}, of task {};", each.core,
                          each.stuck == Stuck::kStage ? "stage" : "task record", each.task);
  }
  return text;
}

}  // namespace sluice::gpu

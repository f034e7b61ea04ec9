#include "tests/gpu/chain_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/abi/gpu/matrix.h"
#include "runtime/comm/in_process.h"

namespace sluice::gpu {
namespace {

constexpr uint16_t kNaN = 0x7FD5;
constexpr int kCores = 3;
constexpr int kCommLanes = 2;  // per core

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

MappedMatrix HostMatrix::operand(int boxRows) const {
  const int64_t pitch = 2 * pitch_;
  return {.data = reinterpret_cast<const std::byte*>(data()),
          .columns = columns,
          .rows = rows,
          .outers = outers,
          .rowPitch = pitch,
          .outerPitch = pitch * rows,
          .boxRows = boxRows};
}

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
  if (product.kind != ProductKind::kPlain) tables_.activation = product.activation;
  add(lane, TaskKind::kProduct, tables_.products.size(), events, random);
  tables_.products.push_back(product);
}

void ChainRun::add(int lane, const WeightGrad& grad, const TaskEvents& events, std::mt19937& random) {
  add(lane, TaskKind::kWeightGrad, tables_.weightGrads.size(), events, random);
  tables_.weightGrads.push_back(grad);
}

void ChainRun::add(int lane, const RowWork& work, const TaskEvents& events, std::mt19937& random) {
  if (work.op == RowOp::kActivation || work.op == RowOp::kActivationGrad)
    tables_.activation = work.activation;
  add(lane, TaskKind::kRowWork, tables_.rowWorks.size(), events, random);
  tables_.rowWorks.push_back(work);
}

void ChainRun::add(int lane, const RowCopy& copy, const TaskEvents& events, std::mt19937& random) {
  add(lanesPerCore_ + lane, TaskKind::kRowCopy, tables_.rowCopies.size(), events, random);
  tables_.rowCopies.push_back(copy);
}

void ChainRun::add(int lane, TaskKind kind, size_t work, const TaskEvents& events, std::mt19937& random) {
  const auto lanes = static_cast<size_t>(lanesPerCore_ + kCommLanes);
  lanes_.resize(kCores * lanes);
  last_ = random() % kCores * lanes + static_cast<size_t>(lane);
  lanes_[last_].push_back({taskOf(kind, work, events)});
}

void ChainRun::addNext(const Product& product, const TaskEvents& events) {
  lanes_[last_].back().push_back(taskOf(TaskKind::kProduct, tables_.products.size(), events));
  tables_.products.push_back(product);
}

ChainTask ChainRun::taskOf(TaskKind kind, size_t work, const TaskEvents& events) {
  ChainTask task = {kind, static_cast<uint32_t>(work), 0, {}, {{events.event, events.amount, 0}}};
  std::ranges::copy(events.waits, task.waits);
  return task;
}

void ChainRun::shuffle(uint32_t events, std::mt19937& random) {
  lanes_.resize(kCores * static_cast<size_t>(lanesPerCore_ + kCommLanes));
  for (auto& lane : lanes_) {
    std::shuffle(lane.begin(), lane.end(), random);
    tables_.lists.push_back(static_cast<uint32_t>(tables_.records.size()));
    for (const auto& sequence : lane)
      tables_.records.insert(tables_.records.end(), sequence.begin(), sequence.end());
  }
  tables_.lists.push_back(static_cast<uint32_t>(tables_.records.size()));
  starts_.assign(static_cast<size_t>(events) * kCounterStride, 0);
  starts_[kStart * kCounterStride] = kStarted;
}

uint32_t ChainRun::loseSignal() {
  const auto found =
      std::ranges::find_if(tables_.records, [](const ChainTask& task) { return task.signals[0].amount > 0; });
  found->signals[0].amount = 0;
  return found->signals[0].event;
}

std::string ChainRun::run(GpuBackend& backend, const std::vector<MappedMatrix>& matrices,
                          std::vector<HostRange> memory, double timeoutSeconds) {
  std::vector<uint64_t> counters = starts_;
  memory.push_back(rangeOf(counters));
  const auto copy = DeviceCopy::make(backend, std::move(memory));
  if (!copy) return copy.error().message;
  StepTables tables = tables_;
  Status mapped;
  for (MappedMatrix matrix : matrices) {
    copy->translate(matrix.data);
    tables.matrices.push_back(makeMatrix(matrix, [&](const MappedMatrix& described) {
      TensorMap map{};
      if (Status made = backend.makeMap(described, map); !made) mapped = made;
      return map;
    }));
  }
  if (!mapped) return mapped.error().message;
  tables.cores = kCores;
  tables.lanes[0] = lanesPerCore_;
  tables.lanes[1] = kCommLanes;
  tables.counters = {counters.data()};
  tables.memory = copy->memory();
  copy->translate(tables);
  InProcessGroup alone(1);
  auto outcome = backend.run(tables, alone.transport(0), timeoutSeconds);
  if (!outcome) return outcome.error().message;
  reports_ = std::move(outcome->reports);
  if (std::ranges::any_of(reports_, [](const StuckReport& each) { return each.stuck != Stuck::kNo; }))
    return describeReports();
  if (Status copied = copy->copyBack(); !copied) return copied.error().message;
  std::vector<uint64_t> ends = starts_;
  for (const ChainTask& task : tables_.records)
    for (const EventSignal& each : task.signals) ends[each.event * kCounterStride] += each.amount;
  return counters == ends ? "" : "an event has another count than its tasks signal";
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

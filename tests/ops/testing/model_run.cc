#include "tests/ops/testing/model_run.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tests/gpu/run_on_model.h"

namespace sluice::ops {

namespace {

// Rows that begin at multiples of 16 bytes, with a gap after each.
gpu::HostRows alignedRows(int64_t rows, int64_t columns, int64_t elementBytes) {
  const int64_t inUnit = 16 / elementBytes;
  return gpu::HostRows({.elementBytes = static_cast<int>(elementBytes),
                        .rows = static_cast<int>(rows),
                        .columns = static_cast<int>(columns),
                        .spare = static_cast<int>(2 * inUnit - columns % inUnit)});
}

}  // namespace

std::mt19937& ModelRun::random() {
  static std::mt19937 numbers(1);
  return numbers;
}

ModelRun::ModelRun()
    : tileColumns_(random()() % 2 == 0 ? 128 : 256),
      blocks_(1 + static_cast<int>(random()() % 2)),
      copiesMatrices_(random()() % 2 == 0) {}

void ModelRun::allow(const void* data, int64_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  if (bytes > 0) ranges_.push_back({begin, begin + bytes});
}

uint16_t ModelRun::add(const gpu::MappedMatrix& matrix) {
  matrices_.push_back(matrix);
  return static_cast<uint16_t>(matrices_.size() - 1);
}

// Operands may overlap, what a run copies may not.
std::vector<gpu::HostRange> ModelRun::memory() {
  std::ranges::sort(ranges_, {}, &Range::begin);
  std::vector<gpu::HostRange> memory;
  for (size_t i = 0; i < ranges_.size();) {
    Range whole = ranges_[i];
    for (++i; i < ranges_.size() && ranges_[i].begin < whole.end; ++i)
      whole.end = std::max(whole.end, ranges_[i].end);
    memory.emplace_back(const_cast<std::byte*>(whole.begin), const_cast<std::byte*>(whole.end));
  }
  return memory;
}

void ModelRun::run() {
  if (!hasTasks_) return;
  tasks_.shuffle(gpu::kStart + 1, random());
  gpu::ModelRank rank(blocks_, tileColumns_, random()());
  const std::string wrong = tasks_.run(rank.backend(), matrices_, memory(), gpu::kModelTimeout);
  if (!wrong.empty()) throw std::runtime_error(wrong);
}

PlacedMatrix::PlacedMatrix(ModelRun& run, const Operand& matrix, int32_t rows, int32_t columns)
    : run_(run),
      matrix_(matrix),
      rows_(rows),
      columns_(columns),
      elementBytes_(static_cast<int64_t>(dtypeBytes(matrix.type))) {
  if (!run.copiesMatrices()) {
    if (rows > 0 && columns > 0) run.allow(matrix.data, (rows_ - 1) * matrix.ld * elementBytes_ + rowBytes());
    return;
  }
  copy_.emplace(alignedRows(rows_, columns_, elementBytes_));
  for (int row = 0; row < rows && columns > 0; ++row)
    std::memcpy(copy_->row(row), matrix.from(row, 0).data, static_cast<size_t>(rowBytes()));
  run.allow(copy_->bytes().data(), static_cast<int64_t>(copy_->bytes().size()));
}

uint16_t PlacedMatrix::add(int boxRows) {
  gpu::MappedMatrix described;
  described.data = copy_ ? copy_->row(0) : static_cast<const std::byte*>(matrix_.data);
  described.elementBytes = static_cast<int>(elementBytes_);
  described.columns = columns_;
  described.rows = rows_;
  described.rowPitch = copy_ ? copy_->pitch() : matrix_.ld * elementBytes_;
  described.outerPitch = rows_ * described.rowPitch;
  described.boxRows = boxRows;
  return run_.add(described);
}

void PlacedMatrix::copyBack(const Result& to) const {
  if (!copy_) return;
  if (!copy_->hasKeptGaps()) throw std::runtime_error("something was written outside of the result");
  for (int row = 0; row < rows_; ++row)
    std::memcpy(to.from(row, 0).data, copy_->row(row).data(), static_cast<size_t>(rowBytes()));
}

}  // namespace sluice::ops

#include "tests/gpu/weight_grad_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace sluice::gpu {
namespace {

constexpr uint32_t kNaNs = 0x7FD57FD5;  // of bf16 and fp32 alike
constexpr int kDepth = 40;              // of x
constexpr int kLanes = 3;

// Matrices; after them those of the experts' rows, of a and dy in turn.
enum : uint16_t { kX, kWeight, kDyOut, kGradOut, kARows, kResult, kOfExperts };

bool isBf16(GradForm form) { return form == GradForm::kBf16 || form == GradForm::kBf16Added; }

std::vector<double> valuesOf(const HostMatrix& matrix) {
  std::vector<double> values;
  for (int r = 0; r < matrix.rows; ++r)
    for (int c = 0; c < matrix.columns; ++c) values.push_back(matrix.value(0, r, c));
  return values;
}

// Begins and ends with rows of a matrix.
MappedMatrix rowsOf(const HostMatrix& matrix, int begin, int rows) {
  MappedMatrix part = matrix.operand(64);
  part.data += begin * part.rowPitch;
  part.rows = std::max(rows, 1);  // a map needs a row, which is not read
  return part;
}

std::vector<int> beginsOf(const std::vector<int>& rows) {
  std::vector<int> begins = {0};
  for (const int each : rows) begins.push_back(begins.back() + each);
  return begins;
}

}  // namespace

HostGrad::HostGrad(int numBytes, int numExperts, int numRows, int numColumns, RowGaps gaps)
    : elementBytes(numBytes),
      experts(numExperts),
      rows(numRows),
      columns(numColumns),
      isMapped_(gaps.isMapped),
      begin_(isMapped_ ? 0 : static_cast<size_t>(gaps.spare * elementBytes)),
      pitch_(static_cast<size_t>(isMapped_ ? (columns * elementBytes + 15) / 16 * 16 + 16 * gaps.spare
                                           : (columns + gaps.spare) * elementBytes)),
      bytes_((begin_ + pitch_ * static_cast<size_t>(experts * rows + 16) + 3) / 4 * 4) {
  for (size_t i = 0; i < bytes_.size(); i += 4) std::memcpy(&bytes_[i], &kNaNs, 4);
}

size_t HostGrad::offset(int expert, int row, int column) const {
  return begin_ + static_cast<size_t>(expert * rows + row) * pitch_ +
         static_cast<size_t>(column * elementBytes);
}

float HostGrad::value(int expert, int row, int column) const {
  uint32_t bits = 0;  // bf16 is the upper half of fp32
  std::memcpy(reinterpret_cast<std::byte*>(&bits) + 4 - elementBytes, &bytes_[offset(expert, row, column)],
              static_cast<size_t>(elementBytes));
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

void HostGrad::set(int expert, int row, int column, float value) {
  std::memcpy(&bytes_[offset(expert, row, column)],
              reinterpret_cast<const std::byte*>(&value) + 4 - elementBytes,
              static_cast<size_t>(elementBytes));
}

MappedMatrix HostGrad::operand(int boxRows) const {
  const auto pitch = static_cast<int64_t>(pitch_);
  return {.data = &bytes_[begin_],
          .elementBytes = elementBytes,
          .columns = columns,
          .rows = rows,
          .outers = experts,
          .rowPitch = pitch,
          .outerPitch = pitch * rows,
          .boxRows = boxRows};
}

bool HostGrad::hasKeptGaps() const {
  const auto* const nans = reinterpret_cast<const std::byte*>(&kNaNs);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    const size_t place = i - begin_;
    const bool isGap = i < begin_ || static_cast<int>(place % pitch_) >= columns * elementBytes ||
                       place / pitch_ >= size_t(experts * rows);
    if (isGap && bytes_[i] != nans[i % 4]) return false;
  }
  return true;
}

WeightGradCase::Sizes WeightGradCase::sizesOf(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto between = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  constexpr int kEdges[] = {0, 0, 1, 16, 63, 64, 65, 127, 128, 129};
  Sizes sizes{};
  for (int expert = 0; expert < 3; ++expert)
    sizes.rows.push_back(between(0, 1) == 0 ? kEdges[between(0, 9)] : between(0, 300));
  sizes.k = between(0, 2) == 0 ? between(1, 64) : between(65, 200);
  sizes.n = between(0, 2) == 0 ? between(1, 64) : between(65, 260);
  sizes.columns = between(0, 1) == 0 ? 256 : 128;
  if (between(0, 2) == 0) {
    sizes.rowStep = between(16, 128);
    sizes.columnStep = between(16, sizes.columns);
  }
  sizes.form = static_cast<GradForm>(between(0, 3));
  for (RowGaps& gaps : sizes.gaps) gaps = drawGaps(random);
  sizes.alpha = between(0, 1) == 0 ? 1 : 0.3F;
  sizes.divisor = between(0, 1) == 0 ? 0 : between(1, 3);
  // gathered rows of whole parts are copied, others are stored
  if (sizes.divisor > 0 && between(0, 2) > 0) sizes.k = (sizes.k + 7) / 8 * 8;
  return sizes;
}

WeightGradCase::WeightGradCase(uint64_t seed) : WeightGradCase(seed, sizesOf(seed)) {}

WeightGradCase::WeightGradCase(uint64_t seed, const Sizes& sizes)
    : sizes_(sizes),
      begins_(beginsOf(sizes.rows)),
      a_(1, begins_.back(), sizes.k, sizes.gaps[0]),
      x_(1, begins_.back(), kDepth, {}),
      weight_(static_cast<int>(sizes.rows.size()), kDepth, sizes.n, {}),
      dy_(1, begins_.back(), sizes.n, sizes.gaps[1]),
      result_(1, begins_.back(), sizes.n, {}),
      grad_(isBf16(sizes.form) ? 2 : 4, weight_.outers, sizes.k, sizes.n, sizes.gaps[2]),
      tasks_(kLanes) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 1);
  for (HostMatrix* matrix : {&a_, &x_, &weight_}) matrix->fill(random);
  std::uniform_real_distribution<float> values(-1, 1);
  for (int i = 0; i < weight_.outers * sizes.k * sizes.n; ++i) {
    const float value = values(random);
    start_.push_back(isBf16(sizes.form) ? fromBf16(toBf16(value)) : value);
  }
  for (int row = 0; row < a_.rows && sizes.divisor > 0; ++row)
    index_.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(a_.rows * sizes.divisor + 1)) - 1);
  matrices_ = {x_.operand(128),   weight_.operand(64), dy_.operand(64),
               grad_.operand(64), a_.operand(128),     result_.operand(64)};
  for (size_t expert = 0; expert < sizes.rows.size(); ++expert)
    for (HostMatrix* matrix : {&a_, &dy_})
      matrices_.push_back(rowsOf(*matrix, begins_[expert], sizes.rows[expert]));
  addTasks(seed);
}

void WeightGradCase::addTasks(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed) + 2);
  // per expert an event of dy and one of dw, and how often they are signalled in all
  std::vector<uint32_t> amounts(kStart + 1 + 2 * sizes_.rows.size());
  const auto add = [&](int lane, const auto& work, const TaskEvents& events) {
    tasks_.add(lane, work, events, random);
    amounts[events.event] += events.amount;
  };
  for (int expert = 0; expert < weight_.outers; ++expert) {
    const int begin = begins_[static_cast<size_t>(expert)], rows = sizes_.rows[static_cast<size_t>(expert)];
    const uint32_t dyEvent = kStart + 1 + 2 * static_cast<uint32_t>(expert), gradEvent = dyEvent + 1;
    const auto addProducts = [&](int lane, Product product, EventWait wait, uint32_t event, uint32_t amount) {
      for (int row = 0; row < rows; row += kSlotRows)
        for (int column = 0; column < sizes_.n; column += sizes_.columns) {
          product.firstRow = begin + row;
          product.rows = std::min(rows - row, kSlotRows);
          product.firstColumn = column;
          product.endColumn = std::min(column + sizes_.columns, sizes_.n);
          add(lane, product, {{wait, {0, 0}}, event, amount});
        }
    };
    addProducts(2, {kX, kWeight, kDyOut, Major::kMn, 0, 0, expert, 0, 0, kDepth}, {0, 0}, dyEvent,
                1 + random() % 3);
    const EventWait wait = {dyEvent, amounts[dyEvent]};
    const auto ofExpert = static_cast<uint16_t>(kOfExperts + 2 * expert);
    const uint16_t a = index_.empty() ? ofExpert : uint16_t{kARows};
    const int32_t* const index = index_.empty() ? nullptr : index_.data() + begin;
    const int columnStep = std::min(sizes_.columnStep, sizes_.columns);
    for (int row = 0; row < sizes_.k; row += sizes_.rowStep)
      for (int column = 0; column < sizes_.n; column += columnStep)
        add(1,
            WeightGrad{a, static_cast<uint16_t>(ofExpert + 1), kGradOut, sizes_.form, rows, expert, row,
                       std::min(row + sizes_.rowStep, sizes_.k), column,
                       std::min(column + columnStep, sizes_.n), sizes_.alpha, index, nullptr,
                       std::max(sizes_.divisor, 1)},
            {{{0, 0}, wait}, gradEvent, 1 + static_cast<uint32_t>(random() % 3)});
    if (isBf16(sizes_.form))
      addProducts(0, {kARows, kGradOut, kResult, Major::kMn, 0, 0, expert, 0, 0, sizes_.k},
                  {gradEvent, amounts[gradEvent]}, 0, 0);
  }
  tasks_.shuffle(static_cast<uint32_t>(amounts.size()), random);
}

std::string WeightGradCase::run(GpuBackend& backend, double timeoutSeconds) {
  dy_.clear();
  result_.clear();
  size_t at = 0;
  for (int e = 0; e < grad_.experts; ++e)
    for (int r = 0; r < grad_.rows; ++r)
      for (int c = 0; c < grad_.columns; ++c) grad_.set(e, r, c, start_[at++]);
  const std::string wrong = tasks_.run(backend, matrices_,
                                       {a_.memory(), x_.memory(), weight_.memory(), dy_.memory(),
                                        result_.memory(), grad_.memory(), rangeOf(index_)},
                                       timeoutSeconds);
  if (!wrong.empty()) return wrong;
  const std::string wrongGrad = firstWrongGrad();
  return wrongGrad.empty() ? firstWrongResult() : wrongGrad;
}

std::string WeightGradCase::firstWrongGrad() const {
  const std::vector<double> rows = valuesOf(a_), dy = valuesOf(dy_);
  std::vector<double> a = rows;
  for (size_t i = 0; i < a.size() && !index_.empty(); ++i) {
    const auto columns = static_cast<size_t>(a_.columns);
    const int32_t named = index_[i / columns];
    a[i] = named < 0 ? 0 : rows[static_cast<size_t>(named / sizes_.divisor) * columns + i % columns];
  }
  const bool isAdded = sizes_.form == GradForm::kFp32Added || sizes_.form == GradForm::kBf16Added;
  size_t at = 0;
  for (int e = 0; e < grad_.experts; ++e)
    for (int k = 0; k < grad_.rows; ++k)
      for (int n = 0; n < grad_.columns; ++n, ++at) {
        double sum = isAdded ? start_[at] : 0, sizes = std::abs(sum);
        for (int r = begins_[static_cast<size_t>(e)]; r < begins_[static_cast<size_t>(e) + 1]; ++r) {
          const double term = double{sizes_.alpha} * a[static_cast<size_t>(r * a_.columns + k)] *
                              dy[static_cast<size_t>(r * dy_.columns + n)];
          sum += term;
          sizes += std::abs(term);
        }
        // as many roundings to fp32 as there are terms, and one to bf16
        const int terms = sizes_.rows[static_cast<size_t>(e)] + 2;
        const double allowed = sizes * terms * 0x1p-24 + (isBf16(sizes_.form) ? std::abs(sum) / 256 : 0);
        const double found = grad_.value(e, k, n);
        if (!(std::abs(found - sum) <= allowed))
          return fmt::format("dw[{}, {}, {}] is {}, expected {}", e, k, n, found, sum);
      }
  return grad_.hasKeptGaps() ? "" : "something was written outside of dw";
}

std::string WeightGradCase::firstWrongResult() const {
  if (!isBf16(sizes_.form)) return "";
  for (int e = 0; e < grad_.experts; ++e)
    for (int r = begins_[static_cast<size_t>(e)]; r < begins_[static_cast<size_t>(e) + 1]; ++r)
      for (int n = 0; n < grad_.columns; ++n) {
        double sum = 0, sizes = 0;
        for (int k = 0; k < grad_.rows; ++k) {
          const double term = a_.value(0, r, k) * grad_.value(e, k, n);
          sum += term;
          sizes += std::abs(term);
        }
        const double allowed = std::abs(sum) / 256 + sizes * grad_.rows * 0x1p-24;
        if (!(std::abs(result_.value(0, r, n) - sum) <= allowed))
          return fmt::format("result[{}, {}] is {}, expected {}", r, n, result_.value(0, r, n), sum);
      }
  return "";
}

}  // namespace sluice::gpu

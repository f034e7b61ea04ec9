#include "tests/gpu/pitch_case.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <random>
#include <vector>

#include "runtime/abi/gpu/chain_plan.h"
#include "tests/gpu/chain_run.h"
#include "tests/gpu/run_on_model.h"

namespace sluice::gpu {
namespace {

constexpr int kRows = 66;  // of every matrix: a box that is stored, and two rows by plain stores
constexpr int kBoxRows = 64;
constexpr int kInner = 24;            // columns of what a product sums over, which are also rows of weights
constexpr int kGradRows = 16;         // of the first tile of a weight gradient, which has kInner
constexpr int kColumns = 72;          // of gate and up, and of a tile's result: 64 and 8
constexpr int kInter = kColumns / 2;  // of act
constexpr int64_t kRowBytes = 8192;   // all matrices side by side
constexpr int64_t kFar = 3'000'000'000;  // from row to row
static_assert(kFar > INT32_MAX && kFar % 16 == 0);

// Rows of memory that is only mapped, `pitch` bytes apart. A resource.
class WideRows {
 public:
  WideRows(int64_t pitch, uint64_t seed) : pitch_(pitch), bytes_(static_cast<size_t>(pitch * kRows)) {
    void* const memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(memory);
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::uniform_int_distribution<int> values(-16, 16);
    for (int r = 0; r < kRows; ++r)
      for (int64_t at = 0; at < kRowBytes; at += 2) {
        const uint16_t value = toBf16(static_cast<float>(values(random)) / 16);
        std::memcpy(row(r) + at, &value, sizeof(value));
      }
  }
  ~WideRows() { ::munmap(data_, bytes_); }
  WideRows(const WideRows&) = delete;
  WideRows& operator=(const WideRows&) = delete;

  std::byte* row(int r) const { return data_ + r * pitch_; }
  int64_t pitch() const { return pitch_; }
  HostRange memory() const { return {data_, bytes_}; }

 private:
  int64_t pitch_;
  size_t bytes_;
  std::byte* data_;
};

// Matrices are added from left to right.
class Builder {
 public:
  Builder(const WideRows& rows, std::mt19937& random) : rows_(rows), random_(random) {}

  // The first row of columns that no other matrix has; at any element where TMA is not to copy it.
  std::byte* next(int elementBytes, int columns) {
    end_ = (end_ + 31) / 16 * 16 + (random_() % 3 == 0 ? elementBytes : 0);
    std::byte* const first = rows_.row(0) + end_;
    end_ += int64_t{elementBytes} * columns;
    if (end_ > kRowBytes) throw std::length_error("the matrices of a PitchCase do not fit into kRowBytes");
    return first;
  }
  uint16_t add(int columns, int boxRows, int elementBytes = 2) {
    return addAt(next(elementBytes, columns), columns, boxRows, elementBytes);
  }
  uint16_t addAt(const std::byte* first, int columns, int boxRows, int elementBytes = 2) {
    MappedMatrix described;
    described.data = first;
    described.elementBytes = elementBytes;
    described.columns = columns;
    described.rows = kRows;
    described.rowPitch = rows_.pitch();
    described.outerPitch = kRows * rows_.pitch();
    described.boxRows = boxRows;
    matrices_.push_back(described);
    return static_cast<uint16_t>(matrices_.size() - 1);
  }
  const std::vector<MappedMatrix>& matrices() const { return matrices_; }

 private:
  const WideRows& rows_;
  std::mt19937& random_;
  int64_t end_ = 0;
  std::vector<MappedMatrix> matrices_;
};

// What the tasks read besides rows.
struct Lists {
  std::vector<int32_t> index, position;
};

void addProducts(ChainRun& tasks, Builder& builder, const Lists& lists, int tileColumns,
                 std::mt19937& random) {
  const TaskEvents events = {{{0, 0}, {kStart, kStarted}}, 0, 0};
  std::byte* const first = builder.next(2, kInner);
  const uint16_t rows = builder.addAt(first, kInner, 128);
  const uint16_t weight = builder.add(kColumns, 64), gateUp = builder.add(kColumns, 64);
  Product plain{rows, weight, builder.add(kColumns, 64), Major::kMn, 0, kRows, 0, 0, kColumns, kInner};
  plain.rowIndex = lists.index.data();
  plain.rows = kBoxRows;
  tasks.add(0, plain, events, random);
  plain.firstRow = kBoxRows;
  plain.rows = kRows - kBoxRows;
  tasks.add(0, plain, events, random);
  plain.firstRow = 0;
  plain.rows = kRows;
  plain.rowIndex = nullptr;
  plain.out = builder.add(kColumns, 64);
  tasks.add(0, plain, events, random);
  // the weight as [N,K]: its rows are columns of the result
  tasks.add(0,
            Product{rows, builder.add(kInner, tileColumns / 2), builder.add(kRows, 64), Major::kK, 0, kRows,
                    0, 0, kRows, kInner},
            events, random);

  Product activation{rows,
                     weight,
                     builder.add(kInter, 64),
                     Major::kMn,
                     0,
                     kRows,
                     0,
                     0,
                     kInter,
                     kInner,
                     ProductKind::kActivation,
                     builder.add(kColumns, 64)};
  tasks.add(1, activation, events, random);
  tasks.add(1,
            Product{rows, builder.add(kInter, 64), builder.add(kColumns, 64), Major::kMn, 0, kRows, 0, 0,
                    kInter, kInner, ProductKind::kActivationGrad, gateUp, builder.add(kInter, 64)},
            events, random);

  const auto form = static_cast<GradForm>(random() % 4);
  const bool isBf16 = form == GradForm::kBf16 || form == GradForm::kBf16Added;
  WeightGrad grad{builder.addAt(first, kInner, 64),
                  builder.add(kColumns, 64),
                  builder.add(kColumns, 64, isBf16 ? 2 : 4),
                  form,
                  kRows,
                  0,
                  0,
                  kGradRows,
                  0,
                  kColumns};
  tasks.add(1, grad, events, random);
  grad.firstRow = kGradRows;
  grad.endRow = kInner;
  tasks.add(1, grad, events, random);
}

void addRowTasks(ChainRun& tasks, Builder& builder, const Lists& lists, int64_t pitch, std::mt19937& random) {
  const TaskEvents events = {{{0, 0}, {kStart, kStarted}}, 0, 0};
  std::byte* const from = builder.next(2, kColumns);
  tasks.add(
      0, RowCopy{from, pitch, lists.index.data(), 1, builder.next(2, kColumns), pitch, 2 * kColumns, kRows},
      events, random);
  const auto addWork = [&](RowOp op, int topK) {
    RowWork work{};
    work.op = op;
    work.in[0] = from;
    work.inPitch[0] = work.outPitch[0] = pitch;
    work.out[0] = builder.next(2, kColumns);
    work.position = lists.position.data();
    work.rows = kRows / topK;
    work.columns = kColumns;
    work.topK = topK;
    work.parts = 1;
    work.alpha = 0.5F;
    tasks.add(0, work, events, random);
  };
  addWork(RowOp::kScale, 1);
  addWork(RowOp::kWeightedSum, 2);
  addWork(RowOp::kColumnSum, 1);
}

// Runs the case on these rows. Returns what is wrong.
std::string runOn(const WideRows& rows, uint64_t caseSeed, int blocks, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(caseSeed) + 1);
  Lists lists;
  for (int i = 0; i < kRows; ++i) lists.index.push_back(static_cast<int32_t>(random() % (kRows + 1)) - 1);
  for (int i = 0; i < kRows; ++i) lists.position.push_back(static_cast<int32_t>(random() % kRows));
  const int tileColumns = random() % 2 == 0 ? 128 : 256;
  Builder builder(rows, random);
  ChainRun tasks;
  addProducts(tasks, builder, lists, tileColumns, random);
  addRowTasks(tasks, builder, lists, rows.pitch(), random);
  tasks.shuffle(kStart + 1, random);
  // memory that is only mapped is not copied to a device
  ModelRank rank(blocks, tileColumns, seed, false);
  return tasks.run(rank.backend(), builder.matrices(),
                   {rows.memory(), rangeOf(lists.index), rangeOf(lists.position)}, kModelTimeout);
}

}  // namespace

std::string PitchCase::run(int blocks, uint64_t seed) const {
  const WideRows near(kRowBytes, seed_), far(kFar, seed_);
  for (const WideRows* rows : {&near, &far}) {
    const std::string wrong = runOn(*rows, seed_, blocks, seed);
    if (!wrong.empty()) return fmt::format("rows {} bytes apart: {}", rows->pitch(), wrong);
  }
  for (int r = 0; r < kRows; ++r) {
    const auto [there, here] = std::mismatch(far.row(r), far.row(r) + kRowBytes, near.row(r));
    if (there != far.row(r) + kRowBytes)
      return fmt::format("byte {} of row {} is {}, but {} where rows are near", there - far.row(r), r,
                         static_cast<int>(*there), static_cast<int>(*here));
  }
  return "";
}

}  // namespace sluice::gpu

#include "tests/gpu/row_work_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace sluice::gpu {
namespace {

// Lanes of comm.
constexpr int kIn = 0, kOut = 1;

// What is copied differs from what it is copied from.
std::string firstWrongCopy(const HostRows& from, const HostRows& to, const std::vector<int32_t>& index,
                           int divisor, const char* name) {
  for (int r = 0; r < to.rows(); ++r) {
    const int source = index.empty() ? r : index[static_cast<size_t>(r)] / divisor;
    if (!std::ranges::equal(from.row(source), to.row(r)))
      return fmt::format("row {} of {} is not what was copied", r, name);
  }
  return to.hasKeptGaps() ? "" : fmt::format("something was written outside of {}", name);
}

std::vector<RowWorkSizes> sizesOf(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto between = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  constexpr int kOps = 8;
  // of a launch
  const auto kind = static_cast<ActivationKind>(between(0, static_cast<int>(ActivationKind::MAX)));
  std::vector<RowWorkSizes> works;
  for (int i = 0; i < 3; ++i) {
    RowWorkSizes sizes{};
    sizes.op = static_cast<RowOp>((static_cast<int>(seed) + 3 * i) % kOps);
    sizes.rows = between(0, 4) == 0 ? between(0, 2) : between(3, 40);
    sizes.columns = between(0, 2) == 0 ? between(1, 9) : between(10, 150);
    if (between(0, 1) == 0) sizes.columns = (sizes.columns + 7) / 8 * 8;
    const bool isReduced =
        sizes.op == RowOp::kColumnSum || sizes.op == RowOp::kRowDot || sizes.op == RowOp::kActivationGrad;
    if (isReduced && between(0, 1) == 0) {  // more columns than a warpgroup or a warp takes at once
      sizes.rows = between(1, 9);
      sizes.columns += 400;
    }
    sizes.topK = between(1, 5);
    sizes.parts = between(0, 1) == 0 ? 1 : between(2, 3);
    if (sizes.topK * sizes.parts > 6) sizes.rows /= 2;  // the model takes its time
    sizes.isFp32 = between(0, 1) == 0;
    sizes.accumulates = sizes.op == RowOp::kColumnSum && between(0, 1) == 0;
    sizes.hasWeights = between(0, 2) != 0;
    sizes.hasLast = between(0, 2) == 0;
    sizes.givesAct = between(0, 1) == 0;
    if (between(0, 3) == 0 && sizes.op == RowOp::kWeightedSum) {
      sizes.topK = sizes.parts = 1;
      sizes.hasWeights = sizes.hasLast = false;
    }
    sizes.kind = kind;
    works.push_back(sizes);
  }
  RowWorkSizes copies{};
  copies.onlyCopies = true;
  copies.rows = between(0, 120);
  copies.columns = between(0, 1) == 0 ? between(1, 20) : between(21, 150);
  works.push_back(copies);
  return works;
}

}  // namespace

RowWorkCase::RowWorkCase(uint64_t seed) : RowWorkCase(seed, sizesOf(seed)) {}

RowWorkCase::RowWorkCase(uint64_t seed, const std::vector<RowWorkSizes>& works)
    : random_(static_cast<uint32_t>(seed) + 1) {
  for (const RowWorkSizes& sizes : works) works_.push_back(countWork(sizes));
  uint32_t event = kStart + 1;
  for (Work& work : works_) {
    addTasks(work, event);
    event += 2;
  }
  tasks_.shuffle(event, random_);
}

int RowWorkCase::between(int low, int high) {
  return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
}

HostRows::Layout RowWorkCase::layoutOf(int elementBytes, int rows, int columns, bool isList) {
  const bool isAligned = between(0, 1) == 0;
  const int offset = isAligned ? 0 : between(0, 15);
  if (isList) return {elementBytes, rows, columns, offset};
  const int part = 16 / elementBytes;
  const int spare = isAligned ? (part - columns % part) % part + part * between(0, 1) : between(0, 5);
  return {elementBytes, rows, columns, offset, spare};
}

// Numbers, in rows in any order of some more. A single column is a list.
RowWorkCase::Copied RowWorkCase::copied(int elementBytes, int rows, int columns, int step) {
  const int sources = rows + between(0, 3), divisor = between(1, 3);
  HostRows::Layout source = layoutOf(elementBytes, sources, columns, false);
  source.gap = std::byte{0x11};  // so that it is seen where it is copied
  Copied it{
      HostRows(source), HostRows(layoutOf(elementBytes, rows, columns, columns == 1)), {}, divisor, step};
  if (between(0, 2) == 0) return it;
  std::vector<int32_t> order(static_cast<size_t>(sources));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random_);
  for (int r = 0; r < rows; ++r)
    it.index.push_back(order[static_cast<size_t>(r)] * divisor + between(0, divisor - 1));
  return it;
}

RowWorkCase::Work RowWorkCase::countWork(const RowWorkSizes& sizes) {
  Work work{sizes, {}, {}, {}, {}, {}, {}};
  for (const OperandShape& each : inputsOf(sizes))
    work.ins.push_back(copied(each.elementBytes, each.rows, each.columns, each.step));
  for (const OperandShape& each : outputsOf(sizes)) {
    work.outs.push_back(copied(each.elementBytes, each.rows, each.columns, each.step));
    Copied& out = work.outs.back();  // from a result, which has no more rows than are made
    out.from = HostRows(layoutOf(each.elementBytes, each.rows, each.columns, each.columns == 1));
    for (int32_t& index : out.index) index %= std::max(each.rows, 1) * out.divisor;
  }
  const int pairs = sizes.rows * sizes.topK;
  for (int i = 0; i < pairs; ++i) work.positions.push_back(i);
  std::ranges::shuffle(work.positions, random_);
  for (int32_t& each : work.positions)
    if (between(0, 5) == 0) each = -1;
  std::vector<HostRows*> operands;
  for (Copied& in : work.ins) {
    in.from.fill(random_);
    HostRows wanted = in.to;
    for (int r = 0; r < wanted.rows(); ++r) {
      const int source = in.index.empty() ? r : in.index[static_cast<size_t>(r)] / in.divisor;
      std::ranges::copy(std::as_const(in.from).row(source), wanted.row(r));
    }
    work.wanted.push_back(std::move(wanted));
  }
  for (HostRows& each : work.wanted) operands.push_back(&each);
  if (!sizes.onlyCopies) {
    HostRows start = work.outs[0].from;
    start.fill(random_);
    for (int r = 0; r < start.rows(); ++r) {
      std::vector<double>& row = work.starts.emplace_back();
      for (int c = 0; c < start.columns(); ++c) row.push_back(start.value(r, c));
    }
    work.results = collectResults(sizes, operands, work.positions, start);
  }
  return work;
}

void RowWorkCase::addTasks(Work& work, uint32_t event) {
  uint32_t signals = 0;
  for (Copied& in : work.ins) signals += addCopies(kIn, in, {kStart, kStarted}, event);
  if (work.sizes.onlyCopies) return;
  const uint32_t done = addWork(work, {event, signals}, event + 1);
  for (Copied& out : work.outs) addCopies(kOut, out, {event + 1, done}, 0);
}

// In up to three tasks, which all signal. Returns how often.
uint32_t RowWorkCase::addCopies(int lane, Copied& copied, EventWait wait, uint32_t event) {
  uint32_t signals = 0;
  int row = 0;
  do {
    const int rows = signals == 2 ? copied.to.rows() - row : between(0, copied.to.rows() - row);
    const bool hasIndex = !copied.index.empty();
    const RowCopy copy{copied.from.row(hasIndex ? 0 : row),
                       copied.from.pitch(),
                       hasIndex ? copied.index.data() + row : nullptr,
                       copied.divisor,
                       copied.to.row(row),
                       copied.to.pitch(),
                       copied.to.rowBytes(),
                       rows};
    tasks_.add(lane, copy, {{wait, {0, 0}}, event, event == 0 ? 0U : 1U}, random_);
    ++signals;
    row += rows;
  } while (row < copied.to.rows() || signals == 0);
  return signals;
}

// In up to three tasks: of some rows each, or of some columns where those are summed.
uint32_t RowWorkCase::addWork(Work& work, EventWait wait, uint32_t event) {
  const RowWorkSizes& sizes = work.sizes;
  const bool ofColumns = sizes.op == RowOp::kColumnSum;
  const int all = ofColumns ? sizes.columns : sizes.rows;
  uint32_t signals = 0;
  int begin = 0;
  do {
    const int count = signals == 2 ? all - begin : between(all > 0 ? 1 : 0, all - begin);
    RowWork task{};
    task.op = sizes.op;
    task.activation = sizes.kind;
    task.isFp32 = sizes.isFp32;
    task.accumulates = sizes.accumulates;
    task.rows = ofColumns ? sizes.rows : count;
    task.columns = ofColumns ? count : sizes.columns;
    task.topK = sizes.topK;
    task.parts = sizes.parts;
    task.partRows = partRowsOf(sizes);
    task.alpha = effectiveAlpha(sizes);
    task.limit = kActivationLimit;
    task.position = work.positions.data() + begin * sizes.topK;
    for (size_t i = 0; i < work.ins.size(); ++i) {
      Copied& in = work.ins[i];
      task.inPitch[i] = in.to.pitch();
      if (in.to.columns() > 0) task.in[i] = in.to.row(ofColumns ? 0 : begin * in.step);
    }
    for (size_t i = 0; i < work.outs.size(); ++i) {
      Copied& out = work.outs[i];
      task.outPitch[i] = out.from.pitch();
      if (out.from.columns() > 0) task.out[i] = out.from.row(ofColumns ? 0 : begin * out.step);
    }
    if (ofColumns) {
      task.in[0] += begin * 2;
      task.out[0] += begin * work.outs[0].from.elementBytes();
    }
    tasks_.add(between(0, 1), task, {{{0, 0}, wait}, event, 1}, random_);
    ++signals;
    begin += count;
  } while (begin < all);
  return signals;
}

std::string RowWorkCase::run(GpuBackend& backend, double timeoutSeconds) {
  std::vector<HostRange> memory;
  for (Work& work : works_) {
    for (std::vector<Copied>* list : {&work.ins, &work.outs})
      for (Copied& each : *list) {
        if (list == &work.outs) each.from.clear();
        each.to.clear();
        for (const HostRange range : {each.from.memory(), each.to.memory(), rangeOf(each.index)})
          memory.push_back(range);
      }
    memory.push_back(rangeOf(work.positions));
    if (!work.sizes.accumulates || work.outs.empty()) continue;
    HostRows& out = work.outs[0].from;
    for (int r = 0; r < out.rows(); ++r)
      for (int c = 0; c < out.columns(); ++c)
        out.set(r, c, work.starts[static_cast<size_t>(r)][static_cast<size_t>(c)]);
  }
  std::string wrong = tasks_.run(backend, {}, std::move(memory), timeoutSeconds);
  for (const Work& work : works_) {
    const std::string name = fmt::format("op {}", static_cast<int>(work.sizes.op));
    for (size_t i = 0; i < work.ins.size() && wrong.empty(); ++i)
      if (work.ins[i].to.bytes() != work.wanted[i].bytes())
        wrong = fmt::format("{}: operand {} is not what was copied", name, i);
    for (size_t i = 0; i < work.outs.size() && wrong.empty(); ++i) {
      const Copied& out = work.outs[i];
      wrong = firstWrongResult(work.sizes, i, out.from, work.results[i]);
      if (wrong.empty()) wrong = firstWrongCopy(out.from, out.to, out.index, out.divisor, name.c_str());
    }
  }
  return wrong;
}

std::vector<std::vector<std::byte>> RowWorkCase::results() const {
  std::vector<std::vector<std::byte>> all;
  for (const Work& work : works_)
    for (const Copied& out : work.outs) all.push_back(out.to.bytes());
  return all;
}

}  // namespace sluice::gpu

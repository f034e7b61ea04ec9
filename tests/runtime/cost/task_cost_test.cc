#include "runtime/cost/task_cost.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "compiler/target/target.h"
#include "runtime/program/op_table.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

Rates cpuRates() {
  const std::vector<std::string> folders = {"targets"};
  const Expected<Target> target = loadTarget("cpu", folders);
  if (!target) FAIL(target.error().message);
  return target->rates.value();
}

Family product(int32_t n, int32_t k, int32_t tile) {
  Family family;
  family.tiling = {.n = n, .k = k, .tileN = tile};
  return family;
}

TEST_CASE("a product of half_rows rows runs at half the rate, one of many rows at the whole") {
  MatrixRates matrix;
  const ProductRate rate{.flops = 1e9, .halfRows = 8, .halfColumns = 0, .halfSum = 0};
  CHECK(productSeconds(matrix, rate, 8, 100, 100) == Approx(2 * 2.0 * 8 * 100 * 100 / 1e9));
  CHECK(productSeconds(matrix, rate, 1e6, 100, 100) == Approx(2.0 * 1e6 * 100 * 100 / 1e9).epsilon(1e-4));
  matrix.rowBlock = 8;
  CHECK(productSeconds(matrix, rate, 16, 100, 100) == Approx(2 * 2.0 * 16 * 100 * 100 / 1e9));
  matrix.rowUnit = 64;
  CHECK(productSeconds(matrix, rate, 1, 1, 1) == productSeconds(matrix, rate, 64, 1, 1));
  matrix.columnUnit = 64;
  CHECK(productSeconds(matrix, rate, 64, 65, 1) == productSeconds(matrix, rate, 64, 128, 1));
}

TEST_CASE("a tile of a wide weight is read in short runs, a whole or transposed one is not") {
  Rates rates = cpuRates();
  rates.memory.overlap = 0;
  const auto memory = [&](const Family& family) {
    return taskCost({}, family, 64, 1, TaskRates(rates, 1)).memory;
  };
  Family tile = product(4096, 256, 64), whole = product(64, 256, 64);
  rates.memory.halfRun = 0;
  const double tileBefore = memory(tile), wholeBefore = memory(whole);
  rates.memory.halfRun = 256;
  CHECK(memory(tile) > tileBefore);
  CHECK(memory(whole) == wholeBefore);
  tile.tiling.flags = findInfo(tile.op).transposed;
  CHECK(memory(tile) == Approx(tileBefore));
}

TEST_CASE("rows of float32 take twice the memory and link time of bf16, and so do their sums") {
  Rates rates = cpuRates();
  rates.memory.overlap = 0;
  TaskProgram narrow = buildMoeProgram({.ranks = 2}), wide = narrow;
  for (Buffer& buffer : wide.buffers)
    if (buffer.type == DType::kBF16) buffer.type = DType::kF32;
  for (const OpKind op : {OpKind::kDispatch, OpKind::kCombineReturn, OpKind::kCombineSum}) {
    const auto family = std::find_if(narrow.families.begin(), narrow.families.end(),
                                     [&](const Family& f) { return f.op == op; });
    REQUIRE(family != narrow.families.end());
    const auto cost = [&](const TaskProgram& program) {
      return taskCost(program, *family, 16, 1, TaskRates(rates, 1));
    };
    CHECK(cost(wide).memory == Approx(2 * cost(narrow).memory));
    CHECK(cost(wide).vector == Approx(2 * cost(narrow).vector));
    CHECK(cost(wide).memory + cost(wide).vector > 0);
    const auto sent = [&](const TaskProgram& program) { return elementBytes(program, rowsRead(*family)); };
    CHECK(sent(wide) == 2 * sent(narrow));
  }
}

TEST_CASE(
    "a weight gradient hides the writing of its result as far as the device can, a copy hides nothing") {
  Rates rates = cpuRates();
  Family grad = product(512, 1, 512);
  grad.op = OpKind::kGmmWeightGrad;
  grad.tiling.m = grad.tiling.tileM = 512;
  TaskProgram program;
  const auto cost = [&](const Family& family) {
    return taskCost(program, family, 16, 1, TaskRates(rates, 1));
  };
  rates.memory.overlap = rates.memory.writeOverlap = 0;
  const TaskCost bare = cost(grad);
  CHECK(bare.written > 0);
  rates.memory.writeOverlap = 0.5;
  CHECK(cost(grad).memory ==
        Approx(bare.memory - std::min(0.5 * bare.product, bare.written / rates.memory.coreWrite)));
  rates.memory.writeOverlap = 1;
  rates.memory.coreWrite = rates.memory.sharedWrite = 1e30;
  CHECK(cost(grad).memory == Approx(bare.read / rates.memory.coreRead));
}

TEST_CASE("a product takes longer by the numbers that each of its tasks rounds") {
  const Rates rates = cpuRates();
  const auto beyond = [&rates](Family family, double rows) {
    const auto seconds = [&] { return taskCost({}, family, rows, 1, TaskRates(rates, 1)).product; };
    const double plain = seconds();
    family.tiling.roundA = Rounding::kMxE4m3;
    const double ofRows = seconds() - plain;
    family.tiling.roundB = Rounding::kMxE4m3;
    return std::pair(ofRows * rates.vector.round,
                     (seconds() - plain) * rates.vector.round - ofRows * rates.vector.round);
  };
  const auto [rows, weight] = beyond(product(512, 1024, 128), 64);
  CHECK(rows == Approx(64 * 1024));
  CHECK(weight == Approx(128 * 1024));
  // a weight is packed again for each block of rows
  CHECK(beyond(product(512, 1024, 128), 2 * rates.matrix.rowBlock).second == Approx(2 * 128 * 1024));
  Family grad = product(512, 1, 128);
  grad.op = OpKind::kGmmWeightGrad;
  grad.tiling.m = 96;
  CHECK(beyond(grad, 64).first == Approx(64 * 96));
  CHECK(beyond(grad, 64).second == Approx(64 * 128));
}

TEST_CASE("more rows, columns or a longer sum take longer, and never less for each of them") {
  const Rates rates = cpuRates();
  const TaskRates perCore(rates, 8);
  double last = 0, lastEach = 1;
  for (double rows : {1.0, 16.0, 64.0, 128.0, 192.0}) {
    const double seconds = taskCost({}, product(256, 1024, 256), rows, 1, perCore).seconds();
    CHECK(seconds > last);
    CHECK(seconds / rows < lastEach);
    last = seconds;
    lastEach = seconds / rows;
  }
}

TEST_CASE("a weight that the last cache holds is read from memory by its first slot only") {
  const Rates rates = cpuRates();
  const TaskRates perCore(rates, 1);
  const double once = taskCost({}, product(256, 1024, 256), 64, 1, perCore).memory;
  CHECK(taskCost({}, product(256, 1024, 256), 64, 8, perCore).memory < once);
  const double large = taskCost({}, product(1 << 16, 1 << 14, 256), 64, 1, perCore).memory;
  CHECK(taskCost({}, product(1 << 16, 1 << 14, 256), 64, 8, perCore).memory == Approx(large));
}

TEST_CASE("sums that the core's cache cannot hold cost their way to memory and back") {
  Rates rates = cpuRates();
  rates.memory.overlap = 0;
  rates.caches.coreSpill = rates.memory.coreRead;
  const double fits = taskCost({}, product(1 << 14, 4096, 512), 192, 1, TaskRates(rates, 1)).memory;
  rates.caches.core = 4096;
  CHECK(taskCost({}, product(1 << 14, 4096, 512), 192, 1, TaskRates(rates, 1)).memory > 1.5 * fits);
}

TEST_CASE("memory traffic that a product hides counts only if it takes longer") {
  Rates rates = cpuRates();
  rates.memory.overlap = 1;
  CHECK(taskCost({}, product(256, 1024, 256), 192, 1, TaskRates(rates, 1)).memory == 0);
  rates.memory.coreRead = 1e6;
  CHECK(taskCost({}, product(256, 1024, 256), 192, 1, TaskRates(rates, 1)).memory > 0);
}

}  // namespace
}  // namespace sluice

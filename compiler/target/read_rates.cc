#include "compiler/target/read_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sluice {
namespace {

using Json = Figures::Json;

// Wide enough for any device, narrow enough that quotients of two figures are finite.
constexpr double kLeastRate = 1e3, kMostRate = 1e18;  // per second
constexpr double kMostHalf = 1e6;                     // rows, columns, elements
constexpr double kMostBytes = 1e15;
constexpr double kMostSeconds = 1;

ProductRate product(Figures& figures, const Json& matrix, const char* name) {
  const Json& object = Figures::member(matrix, name);
  const std::string field = fmt::format("matrix.{}", name);
  figures.allowOnly(object, field, {"flops", "half_rows", "half_columns", "half_sum"});
  ProductRate rate;
  figures.real(object, field, "flops", kLeastRate, kMostRate, rate.flops);
  figures.real(object, field, "half_rows", 0, kMostHalf, rate.halfRows);
  figures.real(object, field, "half_columns", 0, kMostHalf, rate.halfColumns);
  figures.real(object, field, "half_sum", 0, kMostHalf, rate.halfSum);
  return rate;
}

void readMatrix(Figures& figures, MatrixRates& matrix) {
  const Json& value = figures.value("matrix");
  figures.allowOnly(
      value, "matrix",
      {"gmm", "gmm_transposed", "weight_grad", "row_unit", "column_unit", "row_block", "sum_block"});
  matrix.gmm = product(figures, value, "gmm");
  matrix.gmmTransposed = product(figures, value, "gmm_transposed");
  matrix.weightGrad = product(figures, value, "weight_grad");
  figures.real(value, "matrix", "row_unit", 1, 4096, matrix.rowUnit);
  figures.real(value, "matrix", "column_unit", 1, 4096, matrix.columnUnit);
  figures.real(value, "matrix", "row_block", 0, kMostHalf, matrix.rowBlock);
  figures.real(value, "matrix", "sum_block", 0, kMostHalf, matrix.sumBlock);
}

void readVector(Figures& figures, VectorRates& vector) {
  const Json& value = figures.value("vector");
  figures.allowOnly(value, "vector", {"activation", "activation_grad", "sum", "copy"});
  figures.real(value, "vector", "activation", kLeastRate, kMostRate, vector.activation);
  figures.real(value, "vector", "activation_grad", kLeastRate, kMostRate, vector.activationGrad);
  figures.real(value, "vector", "sum", kLeastRate, kMostRate, vector.sum);
  figures.real(value, "vector", "copy", kLeastRate, kMostRate, vector.copy);
}

void readMemory(Figures& figures, MemoryRates& memory) {
  const Json& value = figures.value("memory");
  figures.allowOnly(value, "memory",
                    {"core_read", "core_write", "shared_read", "shared_write", "half_run", "overlap"});
  figures.real(value, "memory", "core_read", kLeastRate, kMostRate, memory.coreRead);
  figures.real(value, "memory", "core_write", kLeastRate, kMostRate, memory.coreWrite);
  figures.real(value, "memory", "shared_read", kLeastRate, kMostRate, memory.sharedRead);
  figures.real(value, "memory", "shared_write", kLeastRate, kMostRate, memory.sharedWrite);
  figures.real(value, "memory", "half_run", 0, kMostHalf, memory.halfRun);
  figures.real(value, "memory", "overlap", 0, 1, memory.overlap);
}

void readCaches(Figures& figures, CacheSizes& caches) {
  const Json& value = figures.value("caches");
  figures.allowOnly(value, "caches", {"core", "core_spill", "shared"});
  figures.real(value, "caches", "core", 1, kMostBytes, caches.core);
  figures.real(value, "caches", "core_spill", kLeastRate, kMostRate, caches.coreSpill);
  figures.real(value, "caches", "shared", 0, kMostBytes, caches.shared);
}

void readLink(Figures& figures, LinkRates& link) {
  const Json& value = figures.value("link");
  figures.allowOnly(value, "link", {"bandwidth", "latency"});
  figures.real(value, "link", "bandwidth", kLeastRate, kMostRate, link.bandwidth);
  figures.real(value, "link", "latency", 0, kMostSeconds, link.latency);
}

}  // namespace

std::optional<Rates> readRates(Figures& figures) {
  constexpr std::array kGroups = {"matrix", "vector", "memory", "caches", "link", "task"};
  if (std::none_of(kGroups.begin(), kGroups.end(), [&](const char* group) { return figures.has(group); }))
    return std::nullopt;
  Rates rates;
  readMatrix(figures, rates.matrix);
  readVector(figures, rates.vector);
  readMemory(figures, rates.memory);
  readCaches(figures, rates.caches);
  readLink(figures, rates.link);
  figures.real(figures.value("task"), "task", 0, kMostSeconds, rates.task);
  return rates;
}

}  // namespace sluice

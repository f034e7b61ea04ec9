#include "compiler/target/read_rates.h"

#include <fmt/format.h>

namespace sluice {
namespace {

using Json = Figures::Json;

// Wide enough for any device, narrow enough that quotients of two figures are finite.
constexpr double kLeastRate = 1e3, kMostRate = 1e18;  // per second
constexpr double kMostHalf = 1e6;                     // rows, columns, elements
constexpr double kMostBytes = 1e15;
constexpr double kMostSeconds = 1;

ProductRate product(Figures& figures, const Json& matrix, const char* name) {
  ProductRate rate;
  figures.reals(Figures::member(matrix, name), fmt::format("matrix.{}", name),
                {{"flops", kLeastRate, kMostRate, rate.flops},
                 {"half_rows", 0, kMostHalf, rate.halfRows},
                 {"half_columns", 0, kMostHalf, rate.halfColumns},
                 {"half_sum", 0, kMostHalf, rate.halfSum}});
  return rate;
}

void readMatrix(Figures& figures, MatrixRates& matrix) {
  const Json& value = figures.value("matrix");
  figures.reals(value, "matrix",
                {{"row_unit", 1, 4096, matrix.rowUnit},
                 {"column_unit", 1, 4096, matrix.columnUnit},
                 {"row_block", 0, kMostHalf, matrix.rowBlock},
                 {"sum_block", 0, kMostHalf, matrix.sumBlock}},
                {"gmm", "gmm_transposed", "weight_grad"});
  matrix.gmm = product(figures, value, "gmm");
  matrix.gmmTransposed = product(figures, value, "gmm_transposed");
  matrix.weightGrad = product(figures, value, "weight_grad");
}

}  // namespace

std::optional<Rates> readRates(Figures& figures) {
  bool any = false;
  for (const char* group : {"matrix", "vector", "memory", "caches", "link", "task"})
    any |= figures.has(group);
  figures.finish();
  if (!any) return std::nullopt;
  Rates rates;
  readMatrix(figures, rates.matrix);
  VectorRates& vector = rates.vector;
  figures.reals(figures.value("vector"), "vector",
                {{"activation", kLeastRate, kMostRate, vector.activation},
                 {"activation_grad", kLeastRate, kMostRate, vector.activationGrad},
                 {"sum", kLeastRate, kMostRate, vector.sum},
                 {"copy", kLeastRate, kMostRate, vector.copy},
                 {"round", kLeastRate, kMostRate, vector.round}});
  MemoryRates& memory = rates.memory;
  figures.reals(figures.value("memory"), "memory",
                {{"core_read", kLeastRate, kMostRate, memory.coreRead},
                 {"core_write", kLeastRate, kMostRate, memory.coreWrite},
                 {"shared_read", kLeastRate, kMostRate, memory.sharedRead},
                 {"shared_write", kLeastRate, kMostRate, memory.sharedWrite},
                 {"half_run", 0, kMostHalf, memory.halfRun},
                 {"overlap", 0, 1, memory.overlap},
                 {"write_overlap", 0, 1, memory.writeOverlap}});
  figures.reals(figures.value("caches"), "caches",
                {{"core", 1, kMostBytes, rates.caches.core},
                 {"core_spill", kLeastRate, kMostRate, rates.caches.coreSpill},
                 {"shared", 0, kMostBytes, rates.caches.shared}});
  figures.reals(figures.value("link"), "link",
                {{"bandwidth", kLeastRate, kMostRate, rates.link.bandwidth},
                 {"latency", 0, kMostSeconds, rates.link.latency}});
  figures.real(figures.value("task"), "task", 0, kMostSeconds, rates.task);
  return rates;
}

}  // namespace sluice

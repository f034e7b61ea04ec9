#include "compiler/target/read_rates.h"

#include <fmt/format.h>

namespace sluice {
namespace {

using Json = Figures::Json;

// Wide enough for any device, narrow enough that quotients of two figures are finite.
constexpr double kLeastRate = 1e3, kMaxRate = 1e18;  // per second
constexpr double kMaxHalf = 1e6;                     // rows, columns, elements
constexpr double kMaxBytes = 1e15;
constexpr double kMaxSeconds = 1;

ProductRate product(Figures& figures, const Json& matrix, const char* name) {
  ProductRate rate;
  figures.reals(Figures::member(matrix, name), fmt::format("matrix.{}", name),
                {{"flops", kLeastRate, kMaxRate, rate.flops},
                 {"half_rows", 0, kMaxHalf, rate.halfRows},
                 {"half_columns", 0, kMaxHalf, rate.halfColumns},
                 {"half_sum", 0, kMaxHalf, rate.halfSum}});
  return rate;
}

void readMatrix(Figures& figures, MatrixRates& matrix) {
  const Json& value = figures.value("matrix");
  figures.reals(value, "matrix",
                {{"row_unit", 1, 4096, matrix.rowUnit},
                 {"column_unit", 1, 4096, matrix.columnUnit},
                 {"row_block", 0, kMaxHalf, matrix.rowBlock},
                 {"sum_block", 0, kMaxHalf, matrix.sumBlock}},
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
                {{"activation", kLeastRate, kMaxRate, vector.activation},
                 {"activation_grad", kLeastRate, kMaxRate, vector.activationGrad},
                 {"sum", kLeastRate, kMaxRate, vector.sum},
                 {"copy", kLeastRate, kMaxRate, vector.copy},
                 {"round", kLeastRate, kMaxRate, vector.round}});
  MemoryRates& memory = rates.memory;
  figures.reals(figures.value("memory"), "memory",
                {{"core_read", kLeastRate, kMaxRate, memory.coreRead},
                 {"core_write", kLeastRate, kMaxRate, memory.coreWrite},
                 {"shared_read", kLeastRate, kMaxRate, memory.sharedRead},
                 {"shared_write", kLeastRate, kMaxRate, memory.sharedWrite},
                 {"half_run", 0, kMaxHalf, memory.halfRun},
                 {"overlap", 0, 1, memory.overlap},
                 {"write_overlap", 0, 1, memory.writeOverlap}});
  figures.reals(figures.value("caches"), "caches",
                {{"core", 1, kMaxBytes, rates.caches.core},
                 {"core_spill", kLeastRate, kMaxRate, rates.caches.coreSpill},
                 {"shared", 0, kMaxBytes, rates.caches.shared}});
  figures.reals(figures.value("link"), "link",
                {{"bandwidth", kLeastRate, kMaxRate, rates.link.bandwidth},
                 {"latency", 0, kMaxSeconds, rates.link.latency}});
  figures.real(figures.value("task"), "task", 0, kMaxSeconds, rates.task);
  return rates;
}

}  // namespace sluice

// Products and weight gradients in tiles, as runtime/gpu/translate_products.cc makes them.
#include <algorithm>
#include <stdexcept>

#include "tests/ops/testing/model_kernels.h"
#include "tests/ops/testing/model_run.h"

namespace sluice::ops::sm90_model {
namespace {

using gpu::kStoredRows;
using gpu::kTileRows;

Operand read(const Result& result) { return {result.data, result.ld, result.type}; }

gpu::GradForm findForm(const GmmWeightGradArgs& args) {
  if (args.c.type == DType::kBF16) return args.accumulate ? gpu::GradForm::kBf16Added : gpu::GradForm::kBf16;
  return args.accumulate ? gpu::GradForm::kFp32Added : gpu::GradForm::kFp32;
}

// The rows that a matrix has of which so many are read, one after the other or by an index.
int32_t rowsOf(const RowIndex& index, int32_t read) {
  int32_t rows = index ? 0 : read;
  for (int32_t i = 0; i < read; ++i) rows = std::max(rows, static_cast<int32_t>(index.of(i)) + 1);
  return rows;
}

const int32_t* allowed(ModelRun& run, const RowIndex& index, int32_t rows) {
  if (index) run.allow(index.index, rows, 1, rows);
  return index.index;
}

// Calls add(row, endRow, column, endColumn) for each tile of a result.
template <class Add>
void forTiles(int32_t rows, int32_t columns, int32_t tileColumns, const Add& add) {
  for (int32_t row = 0; row < rows; row += kTileRows)
    for (int32_t column = 0; column < columns; column += tileColumns)
      add(row, std::min(row + kTileRows, rows), column, std::min(column + tileColumns, columns));
}

}  // namespace

void gmm(const GmmArgs& args) {
  if (args.packedB != nullptr) throw std::runtime_error("a GPU packs no weights");
  ModelRun run;
  PlacedMatrix a(run, args.a, rowsOf(args.rowsA, args.rows), args.k);
  PlacedMatrix b(run, args.b, args.transposeB ? args.n : args.k, args.transposeB ? args.k : args.n);
  PlacedMatrix c(run, read(args.c), args.rows, args.n);
  if (args.bias != nullptr) run.allow(args.bias, args.n, 1, args.n);
  gpu::Product product{};
  product.a = a.add(kTileRows);
  product.weight = b.add(args.transposeB ? run.tileColumns() / 2 : 64);
  product.weightMajor = args.transposeB ? gpu::Major::kK : gpu::Major::kMn;
  product.out = c.add(kStoredRows);
  product.k = args.k;
  product.rowIndex = allowed(run, args.rowsA, args.rows);
  product.alpha = args.alpha;
  product.bias = reinterpret_cast<const uint16_t*>(args.bias);
  forTiles(args.rows, args.n, run.tileColumns(),
           [&](int32_t row, int32_t endRow, int32_t column, int32_t end) {
             product.firstRow = row;
             product.rows = endRow - row;
             product.firstColumn = column;
             product.endColumn = end;
             run.add(product);
           });
  run.run();
  c.copyBack(args.c);
}

// A GPU multiplies rows as they are: those that an activation gradient has weighted.
void gmmWeightGrad(const GmmWeightGradArgs& given) {
  GmmWeightGradArgs args = given;
  std::vector<BFloat16> weighted;
  for (int32_t r = 0; r < args.rows && given.scale != nullptr; ++r)
    for (int32_t j = 0; j < args.m; ++j)
      weighted.push_back(toBFloat16(static_cast<float>(given.a.at(given.rowsA.of(r), j)) * given.scale[r]));
  if (given.scale != nullptr) {
    args.a = {weighted.data(), args.m};
    args.rowsA = {};
  }
  ModelRun run;
  PlacedMatrix a(run, args.a, rowsOf(args.rowsA, args.rows), args.m);
  PlacedMatrix b(run, args.b, rowsOf(args.rowsB, args.rows), args.n);
  PlacedMatrix c(run, read(args.c), args.m, args.n);
  gpu::WeightGrad grad{};
  grad.a = a.add(64);
  grad.dy = b.add(64);
  grad.out = c.add(kStoredRows);
  grad.form = findForm(args);
  grad.rows = args.rows;
  grad.alpha = args.alpha;
  grad.aIndex = allowed(run, args.rowsA, args.rows);
  grad.dyIndex = allowed(run, args.rowsB, args.rows);
  forTiles(args.m, args.n, run.tileColumns(), [&](int32_t row, int32_t endRow, int32_t column, int32_t end) {
    grad.firstRow = row;
    grad.endRow = endRow;
    grad.firstColumn = column;
    grad.endColumn = end;
    run.add(grad);
  });
  run.run();
  c.copyBack(args.c);
}

}  // namespace sluice::ops::sm90_model

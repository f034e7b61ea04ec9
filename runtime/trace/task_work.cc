#include "runtime/trace/task_work.h"

#include "ops/gmm/tiling.h"
#include "ops/gmm_activation/tiling.h"
#include "ops/gmm_weight_grad/tiling.h"

namespace sluice {
namespace {

// Bytes of an element of the first dimension; 0 for an operand that is absent.
double rowBytes(const TaskProgram& program, BufferId id) {
  if (!id) return 0;
  double bytes = static_cast<double>(dtypeBytes(program.at(id).type));
  for (size_t d = 1; d < program.at(id).shape.size(); ++d)
    bytes *= static_cast<double>(program.at(id).shape[d].size);
  return bytes;
}

double rowBytes(const TaskProgram& program, const std::vector<BufferId>& ids) {
  double bytes = 0;
  for (BufferId id : ids) bytes += rowBytes(program, id);
  return bytes;
}

TaskWork weightGradWork(const TaskProgram& program, const Family& family, int32_t tile, double rows) {
  const auto [mRange, nRange] = ops::weightGradTile(family.tiling, tile);
  const double m = mRange.length(), n = nRange.length();
  const double element = static_cast<double>(dtypeBytes(program.at(family.writes[0]).type));
  const double passes = ops::weightGradAccumulates(family.tiling) ? 2 : 1;
  return {2 * rows * m * n,
          2 * rows * (m + n) + passes * element * m * n + rows * rowBytes(program, family.reads[2])};
}

// A product of `columns` columns of the weight; `others` bytes a row go with it beside a and c.
TaskWork productWork(const Tiling& tiling, double rows, double columns, double others) {
  const double k = tiling.k;
  return {2 * rows * k * columns, 2 * (rows * k + k * columns) + rows * others};
}

}  // namespace

TaskWork workOf(const TaskProgram& program, FamilyId id, int32_t tile, int64_t rowCount) {
  const Family& family = program.at(id);
  const double rows = static_cast<double>(rowCount);
  const double bf16 = 2;
  switch (family.op) {
    case OpKind::kDispatch:
    case OpKind::kCombineReturn:
      return {0, 2 * rows * rowBytes(program, family.writes)};
    case OpKind::kCombineSum:
      return {0, rows * (program.topK * rowBytes(program, family.reads[0]) +
                         rowBytes(program, family.writes) + rowBytes(program, family.reads[1]))};
    case OpKind::kGmm: {
      const double columns = ops::gmmTileColumns(family.tiling, tile).length();
      return productWork(family.tiling, rows, columns, bf16 * columns);
    }
    case OpKind::kGmmActivation: {
      const double columns = ops::fusedTileColumns(family.tiling, tile).length();
      const double kept = family.writes[1] ? 2 * columns : 0;
      return productWork(family.tiling, rows, 2 * columns, bf16 * (columns + kept));
    }
    case OpKind::kGmmActivationGrad: {
      const double columns = ops::fusedTileColumns(family.tiling, tile).length();
      return productWork(family.tiling, rows, columns, bf16 * 4 * columns);
    }
    case OpKind::kGmmWeightGrad:
      return weightGradWork(program, family, tile, rows);
    case OpKind::kActivation:
    case OpKind::kActivationGrad:
    case OpKind::kAdd:
    case OpKind::kScale:
      return {0, rows * (rowBytes(program, family.reads) + rowBytes(program, family.writes))};
  }
  return {};
}

}  // namespace sluice

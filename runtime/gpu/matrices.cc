#include "runtime/gpu/matrices.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/abi/gpu/make_matrix.h"

namespace sluice {
namespace {

constexpr int64_t kWhole = -1;

}  // namespace

uint16_t MatrixTable::add(BufferId buffer, int boxRows) { return addAs(buffer, boxRows, kWhole, 0); }

uint16_t MatrixTable::add(BufferId buffer, const RowRange& rows) {
  // a map needs a row, which is not read
  return addAs(buffer, 64, rows.begin, std::max(rows.rows, 1));
}

uint16_t MatrixTable::addAs(BufferId buffer, int boxRows, int64_t begin, int64_t rows) {
  const auto [known, isNew] =
      known_.try_emplace({buffer.value, boxRows, begin, rows}, static_cast<uint16_t>(matrices_.size()));
  if (!isNew) return known->second;
  if (matrices_.size() == gpu::kNoMatrix) {
    status_ = Error{fmt::format("a step has more than {} matrices", gpu::kNoMatrix)};
    known->second = 0;
    return 0;
  }

  const Buffer& described = step_.program().at(buffer);
  const BufferAddress& address = step_.at(buffer);
  const auto& shape = described.shape;
  const int64_t length = measureLength(step_, buffer);
  gpu::MappedMatrix matrix;
  matrix.data = address.data;
  matrix.elementBytes = static_cast<int>(dtypeBytes(described.type));
  matrix.columns = shape.back().size;
  matrix.boxRows = boxRows;
  if (shape.size() == 3) {
    matrix.outers = length;
    matrix.rows = shape[1].size;
    matrix.rowPitch = matrix.columns * matrix.elementBytes;
    matrix.outerPitch = address.stride;
  } else {
    matrix.rows = length;
    matrix.rowPitch = address.stride;
    if (begin != kWhole) {
      matrix.data += begin * address.stride;
      matrix.rows = rows;
    }
    matrix.outerPitch = matrix.rows * matrix.rowPitch;
  }

  matrices_.push_back(gpu::makeMatrix(matrix, [this](const gpu::MappedMatrix& mapped) {
    gpu::TensorMap map{};
    if (Status made = backend_.makeMap(mapped, map); !made) status_ = made;
    return map;
  }));
  return known->second;
}

}  // namespace sluice

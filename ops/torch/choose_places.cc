#include "ops/torch/choose_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/torch/errors.h"
#include "ops/torch/tensors.h"
#include "runtime/program/program.h"
#include "runtime/routing/placement.h"

namespace sluice {

at::Tensor choosePlacesFor(const at::Tensor& rows, int64_t places, int64_t groups) {
  checkTensor("rows", rows, at::kDouble, {kAnySize});
  if (rows.size(0) < 1 || places < rows.size(0) || places > kMaxExperts)
    throwValue(fmt::format("{} places for {} experts, expected one per expert or more, and at most {}",
                           places, rows.size(0), kMaxExperts));
  if (groups < 1 || groups > kMaxRanks)
    throwValue(fmt::format("{} groups of ranks, expected 1 to {}", groups, kMaxRanks));
  const std::span<const double> expected(rows.data_ptr<double>(), static_cast<size_t>(rows.size(0)));
  for (size_t expert = 0; expert < expected.size(); ++expert)
    if (!(expected[expert] >= 0 && std::isfinite(expected[expert])))
      throwValue(fmt::format("rows[{}] is {}, expected a finite number from 0 on", expert, expected[expert]));
  const Mesh mesh{static_cast<int32_t>(groups)};
  const std::vector<int32_t> chosen = choosePlaces(expected, {mesh, static_cast<int32_t>(places)});
  at::Tensor expertAt = makeTensor(DType::kI32, {places});
  std::copy(chosen.begin(), chosen.end(), expertAt.data_ptr<int32_t>());
  return expertAt;
}

}  // namespace sluice

#include "tools/bench/gpu_contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "runtime/abi/kernels.h"

namespace sluice::tools {
namespace {

// Both sides round intermediate values to bf16; a larger difference means a wrong result.
constexpr double kMaxDifference = 0.03;

constexpr int64_t kRowsPerPiece = 8192;  // of activations, which the host computes

}  // namespace

Expected<GpuContest> GpuContest::create(GpuBackend& backend, const RowsCase& c, const GpuLayer& layer,
                                        bool backward) {
  GpuContest contest(backend, c, layer);
  const int64_t rows = c.allRows(), hidden = c.hidden, inter = c.inter, experts = c.experts();
  const auto make = [&](Name name, DType type, std::vector<int64_t> shape) -> Status {
    auto made = makeGpuTensor(backend, type, std::move(shape));
    if (!made) return made.error();
    contest.results_[name] = std::move(*made);
    return {};
  };
  Status made = make(kGateUp, DType::kBF16, {rows, 2 * inter});
  if (made) made = make(kAct, DType::kBF16, {rows, inter});
  if (made) made = make(kY, DType::kBF16, {rows, hidden});
  if (!backward && made) return contest;
  if (made) made = make(kActGrad, DType::kBF16, {rows, inter});
  if (made) made = make(kGateUpGrad, DType::kBF16, {rows, 2 * inter});
  if (made) made = make(kDx, DType::kBF16, {rows, hidden});
  if (made) made = make(kGateUpWeightGrad, DType::kF32, {experts, hidden, 2 * inter});
  if (made) made = make(kDownWeightGrad, DType::kF32, {experts, inter, hidden});
  if (!made) return made.error();
  return contest;
}

// Experts without rows have no product: their gradients stay 0.
GroupedProduct GpuContest::makeGroupedProduct(Product product) const {
  struct Side {
    const GpuTensor& tensor;
    bool isRows;  // of each expert its rows, else its matrix of a weight
  };
  struct Words {
    Side left, right, result;
    bool isLeftTransposed, isRightTransposed;
  };
  const auto rows = [](const GpuTensor& tensor) { return Side{tensor, true}; };
  const auto weight = [](const GpuTensor& tensor) { return Side{tensor, false}; };
  const auto& r = results_;
  const auto chooseWords = [&]() -> Words {
    switch (product) {
      case kUp:
        return {rows(layer_.at("x")), weight(layer_.at("gate_up_weight")), rows(r[kGateUp]), false, false};
      case kDown:
        return {rows(r[kAct]), weight(layer_.at("down_weight")), rows(r[kY]), false, false};
      case kActGradOf:
        return {rows(layer_.at("dy")), weight(layer_.at("down_weight")), rows(r[kActGrad]), false, true};
      case kRowsGrad:
        return {rows(r[kGateUpGrad]), weight(layer_.at("gate_up_weight")), rows(r[kDx]), false, true};
      case kDownGrad:
        return {rows(r[kAct]), rows(layer_.at("dy")), weight(r[kDownWeightGrad]), true, false};
      default:
        return {rows(layer_.at("x")), rows(r[kGateUpGrad]), weight(r[kGateUpWeightGrad]), true, false};
    }
  };
  const Words words = chooseWords();
  GroupedProduct grouped{
      words.isLeftTransposed, words.isRightTransposed, words.result.tensor.type == DType::kF32, {}};
  int64_t firstRow = 0;
  for (int64_t expert = 0; expert < rows_.experts(); ++expert) {
    const int64_t count = rows_.rows[static_cast<size_t>(expert)];
    const auto at = [&](const Side& side) {
      const GpuTensor& tensor = side.tensor;
      const int64_t elements =
          side.isRows ? firstRow * tensor.shape.back() : expert * tensor.shape[1] * tensor.shape[2];
      return tensor.memory.data + elements * dtypeBytes(tensor.type);
    };
    // the sizes of a side, as stored
    const auto sizesOf = [&](const Side& side) {
      return std::pair(side.isRows ? count : side.tensor.shape[1], side.tensor.shape.back());
    };
    const auto [resultRows, resultColumns] = sizesOf(words.result);
    const auto [leftRows, leftColumns] = sizesOf(words.left);
    if (count > 0)
      grouped.experts.push_back({at(words.left), at(words.right), at(words.result), resultRows, resultColumns,
                                 words.isLeftTransposed ? leftRows : leftColumns});
    firstRow += count;
  }
  return grouped;
}

Expected<StepSeconds> GpuContest::runOne(NamedPeer& peer, Product product) {
  const Expected<size_t> number = peer.peer->add(makeGroupedProduct(product));
  if (!number) return number.error();
  numbers_[&peer][product] = *number;
  return peer.peer->run(std::span(&*number, 1));
}

// By the kernels of the CPU, piece by piece.
Status GpuContest::activate(Pass pass) {
  const ops::KernelSet& kernels = **ops::kernelsFor(ops::supportedIsas().back());
  const int64_t inter = rows_.inter, all = rows_.allRows();
  const size_t most = static_cast<size_t>(std::min(all, kRowsPerPiece) * inter);
  std::vector<BFloat16> gateUp(2 * most), act(most), grad(pass == Pass::kForward ? 0 : 2 * most);
  const auto place = [&](Name name, int64_t row) {
    const GpuTensor& tensor = results_[name];
    return tensor.memory.data + row * tensor.shape.back() * int64_t{sizeof(BFloat16)};
  };
  for (int64_t row = 0; row < all; row += kRowsPerPiece) {
    const auto count = static_cast<int32_t>(std::min(kRowsPerPiece, all - row));
    const auto columns = static_cast<int32_t>(inter);
    const auto bytes = static_cast<size_t>(count * inter) * sizeof(BFloat16);
    Status copied = backend_.copyOut(gateUp.data(), place(kGateUp, row), 2 * bytes);
    if (pass == Pass::kForward) {
      kernels.activation({gateUp.data(), 2 * inter, act.data(), inter, count, columns});
      if (copied) copied = backend_.copyIn(place(kAct, row), act.data(), bytes);
    } else {
      if (copied) copied = backend_.copyOut(act.data(), place(kActGrad, row), bytes);
      kernels.activationGrad({act.data(), inter, gateUp.data(), 2 * inter, nullptr, grad.data(), 2 * inter,
                              nullptr, count, columns});
      if (copied) copied = backend_.copyIn(place(kGateUpGrad, row), grad.data(), 2 * bytes);
    }
    if (!copied) return copied;
  }
  return {};
}

Expected<double> GpuContest::differenceFrom(Pass pass) {
  using Pair = std::pair<Name, const char*>;
  const std::initializer_list<Pair> forward = {{kY, "y"}};
  const std::initializer_list<Pair> backward = {
      {kDx, "dx"}, {kGateUpWeightGrad, "gate_up_weight_grad"}, {kDownWeightGrad, "down_weight_grad"}};
  double most = 0;
  for (const auto& [name, ours] : pass == Pass::kForward ? forward : backward) {
    const Expected<double> difference = measureDifference(backend_, layer_.at(ours), results_[name]);
    if (!difference) return difference.error();
    most = std::max(most, *difference);
  }
  return most;
}

Expected<GpuContest::Verdict> GpuContest::check(NamedPeer& peer, Pass pass) {
  const bool isForward = pass == Pass::kForward;
  // what another peer left must not pass for the results of this one
  for (int name = isForward ? kGateUp : kActGrad; name < (isForward ? kActGrad : kNames); ++name) {
    GpuTensor& tensor = results_[static_cast<size_t>(name)];
    const bool isGradient = name == kGateUpWeightGrad || name == kDownWeightGrad;
    if (isGradient) tensor.type = DType::kF32;
    const auto bytes = static_cast<size_t>(tensor.elements() * dtypeBytes(tensor.type));
    if (bytes == 0) continue;
    if (Status zeroed = backend_.zero(tensor.memory.data, bytes); !zeroed) return zeroed.error();
  }
  Verdict verdict;
  const auto multiply = [&](Product product) -> Status {
    const Expected<StepSeconds> ran = runOne(peer, product);
    return ran ? Status() : Status(ran.error());
  };
  Status done = multiply(isForward ? kUp : kActGradOf);
  if (done) done = activate(pass);
  if (done) done = multiply(isForward ? kDown : kRowsGrad);
  for (const auto& [product, name] :
       {std::pair(kDownGrad, kDownWeightGrad), std::pair(kGateUpGradOf, kGateUpWeightGrad)}) {
    if (isForward || !done) break;
    done = multiply(product);
    if (done) continue;
    results_[name].type = DType::kBF16;  // not all libraries have products of bf16 with sums in fp32
    verdict.note = "weight gradients in bf16";
    done = multiply(product);
  }
  if (!done) return done.error();
  const Expected<double> difference = differenceFrom(pass);
  if (!difference) return difference.error();
  verdict.difference = *difference;
  if (*difference <= kMaxDifference) return verdict;
  return Error{
      fmt::format("differs from Sluice by {:.2g}, expected at most {}", *difference, kMaxDifference)};
}

Expected<StepSeconds> GpuContest::run(NamedPeer& peer, Pass pass) {
  const Numbers& numbers = numbers_.at(&peer);
  const std::span all(numbers);
  return peer.peer->run(pass == Pass::kForward ? all.first(2) : all.subspan(2));
}

}  // namespace sluice::tools

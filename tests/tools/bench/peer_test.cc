#include "tools/bench/peer.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace sluice::tools {
namespace {

// Numbers of both signs, small enough that exp() of sums stays in range, and exact in bf16.
Tensor makeTensor(DType type, std::vector<int64_t> shape, uint32_t state) {
  Tensor tensor(type, std::move(shape));
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    state = state * 1664525 + 1013904223;
    setElement(type, tensor.data(), i, static_cast<float>(static_cast<int>(state >> 28) - 8) / 32);
  }
  return tensor;
}

double at(const Tensor& tensor, int64_t i) { return elementAt(tensor.type(), tensor.data(), i); }

double relative(const std::vector<double>& expected, const Tensor& found) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double off = at(found, static_cast<int64_t>(i)) - expected[i];
    apart += off * off;
    size += expected[i] * expected[i];
  }
  return std::sqrt(apart / size);
}

// A layer whose inputs are kept, and its results by plain loops in double.
struct Layer {
  RowsCase c = {"test", 24, 20, {7, 0, 1, 12}};
  Tensor x, dy, gateUpWeight, downWeight;
  std::vector<double> y, dx, gateUpWeightGrad, downWeightGrad;

  explicit Layer(DType type)
      : x(makeTensor(type, {c.allRows(), c.hidden}, 1)),
        dy(makeTensor(type, {c.allRows(), c.hidden}, 2)),
        gateUpWeight(makeTensor(type, {c.experts(), c.hidden, 2 * c.inter}, 3)),
        downWeight(makeTensor(type, {c.experts(), c.inter, c.hidden}, 4)),
        y(static_cast<size_t>(x.elements())),
        dx(static_cast<size_t>(x.elements())),
        gateUpWeightGrad(static_cast<size_t>(gateUpWeight.elements())),
        downWeightGrad(static_cast<size_t>(downWeight.elements())) {
    int64_t row = 0;
    for (int64_t expert = 0; expert < c.experts(); ++expert)
      for (int64_t i = 0; i < c.rows[static_cast<size_t>(expert)]; ++i) compute(expert, row++);
  }

  void compute(int64_t expert, int64_t row) {
    for (int64_t i = 0; i < c.inter; ++i) {
      const auto gateAt = [&](int64_t h) { return (expert * c.hidden + h) * 2 * c.inter + i; };
      const auto downAt = [&](int64_t h) { return (expert * c.inter + i) * c.hidden + h; };
      double gate = 0, up = 0, actGrad = 0;
      for (int64_t h = 0; h < c.hidden; ++h) {
        gate += at(x, row * c.hidden + h) * at(gateUpWeight, gateAt(h));
        up += at(x, row * c.hidden + h) * at(gateUpWeight, gateAt(h) + c.inter);
        actGrad += at(dy, row * c.hidden + h) * at(downWeight, downAt(h));
      }
      const double sigmoid = 1 / (1 + std::exp(-gate)), silu = gate * sigmoid;
      const double gateGrad = actGrad * up * (sigmoid + silu * (1 - sigmoid)), upGrad = actGrad * silu;
      for (int64_t h = 0; h < c.hidden; ++h) {
        const int64_t column = row * c.hidden + h;
        y[static_cast<size_t>(column)] += silu * up * at(downWeight, downAt(h));
        dx[static_cast<size_t>(column)] +=
            gateGrad * at(gateUpWeight, gateAt(h)) + upGrad * at(gateUpWeight, gateAt(h) + c.inter);
        gateUpWeightGrad[static_cast<size_t>(gateAt(h))] += gateGrad * at(x, column);
        gateUpWeightGrad[static_cast<size_t>(gateAt(h) + c.inter)] += upGrad * at(x, column);
        downWeightGrad[static_cast<size_t>(downAt(h))] += silu * up * at(dy, column);
      }
    }
  }
};

// A run must replace all numbers of these results.
PeerResults makeResults(const Layer& layer, DType type) {
  const int64_t rows = layer.c.allRows(), inter = layer.c.inter;
  return {makeTensor(type, {rows, 2 * inter}, 5),
          makeTensor(type, {rows, inter}, 5),
          makeTensor(type, layer.x.shape(), 5),
          makeTensor(type, {rows, inter}, 5),
          makeTensor(type, {rows, 2 * inter}, 5),
          makeTensor(type, layer.x.shape(), 5),
          makeTensor(DType::kF32, layer.gateUpWeight.shape(), 5),
          makeTensor(DType::kF32, layer.downWeight.shape(), 5)};
}

TEST_CASE("each peer that is installed computes the layer in every mode") {
  for (const std::string& name : peerNames()) {
    if (const Expected<std::string> version = peerVersion(name); !version) {
      CHECK(version.error().message.find("--peer " + name + ": ") == 0);
      CHECK(version.error().message.find("apt-get install") != std::string::npos);
      continue;
    }
    const DType type = peerKind(name).type;
    const double tolerance = type == DType::kF32 ? 1e-5 : 2e-2;
    const Layer layer(type);
    const PeerInputs inputs{
        &layer.c, layer.x.data(), layer.dy.data(), layer.gateUpWeight.data(), layer.downWeight.data(), 2};
    for (int number = 0; number < 8; ++number) {
      const PeerMode mode{number % 2 == 1, number / 2 % 2 == 1, number / 4 == 1};
      INFO(name << ", mode " << number);
      PeerResults results = makeResults(layer, type);
      const Expected<std::unique_ptr<Peer>> peer = makePeer(name, inputs, mode, true, results);
      if (!peer) {
        // a processor without AVX-512 has no bf16 products
        CHECK(type == DType::kBF16);
        CHECK(peer.error().message == name + ": the library multiplies no bf16 on this processor");
        break;
      }
      for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
        (*peer)->startThreads();
        CHECK((*peer)->run(pass));
        (*peer)->endThreads();
      }
      CHECK(relative(layer.y, results.y) < tolerance);
      CHECK(relative(layer.dx, results.dx) < tolerance);
      CHECK(relative(layer.gateUpWeightGrad, results.gateUpWeightGrad) < tolerance);
      CHECK(relative(layer.downWeightGrad, results.downWeightGrad) < tolerance);
    }
  }
}

}  // namespace
}  // namespace sluice::tools

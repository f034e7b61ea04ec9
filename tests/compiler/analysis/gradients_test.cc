#include "compiler/analysis/gradients.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

// x 0, gate_up_weight 1, down_weight 2, weights 3; rows 4, gate_up 5, act 6, out 7, y 8
enum : size_t { kX, kGateUpWeight, kDownWeight, kWeights, kRows, kGateUp, kAct, kOut, kY, kTensors };

const std::vector<GradientNode> kLayer = {
    {{kX}, {kRows}},          {{kRows, kGateUpWeight}, {kGateUp}},
    {{kGateUp}, {kAct}},      {{kAct, kDownWeight}, {kOut}},
    {{kOut, kWeights}, {kY}},
};

std::vector<size_t> needed(std::vector<size_t> trainable, std::vector<size_t> seeds) {
  const std::vector<bool> marks = tensorsWithGradient(kLayer, kTensors, trainable, seeds);
  std::vector<size_t> out;
  for (size_t tensor = 0; tensor < marks.size(); ++tensor)
    if (marks[tensor]) out.push_back(tensor);
  return out;
}

TEST_CASE("with everything trainable every tensor needs a gradient") {
  CHECK(needed({kX, kGateUpWeight, kDownWeight, kWeights}, {kY}).size() == kTensors);
}

TEST_CASE("what lies before the trainable tensor needs none") {
  CHECK(needed({kDownWeight}, {kY}) == std::vector<size_t>{kDownWeight, kOut, kY});
  CHECK(needed({kWeights}, {kY}) == std::vector<size_t>{kWeights, kY});
}

TEST_CASE("what no seed depends on needs none") {
  CHECK(needed({kGateUpWeight, kDownWeight}, {kAct}) == std::vector<size_t>{kGateUpWeight, kGateUp, kAct});
  CHECK(needed({kDownWeight}, {kAct}).empty());
}

TEST_CASE("nothing trainable and no seed need nothing") {
  CHECK(needed({}, {kY}).empty());
  CHECK(needed({kX}, {}).empty());
}

}  // namespace
}  // namespace sluice

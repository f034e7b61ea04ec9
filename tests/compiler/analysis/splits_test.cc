#include "compiler/analysis/splits.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

using Catch::Matchers::Contains;

SplitNode node(const char* name, std::vector<size_t> producers, int32_t rows = 0, int32_t tokens = 0) {
  return {name, std::move(producers), rows, tokens};
}

SplitNode piecesNode(const char* name, std::vector<size_t> producers, int32_t rows = 0) {
  SplitNode pieces = node(name, std::move(producers), rows);
  pieces.pieces = true;
  return pieces;
}

TEST_CASE("nodes without a split take the target's sizes") {
  const std::vector<SplitNode> nodes = {node("dispatch", {}), node("up_proj", {0})};
  CHECK(std::get<SplitSizes>(propagateSplits(nodes, {128, 32})) == SplitSizes{128, 32});
}

TEST_CASE("a size declared anywhere holds for the whole program") {
  const std::vector<SplitNode> nodes = {node("dispatch", {}), node("up_proj", {0}, 64),
                                        node("combine", {1}, 64, 8)};
  CHECK(std::get<SplitSizes>(propagateSplits(nodes, {128, 32})) == SplitSizes{64, 8});
}

TEST_CASE("a node that disagrees with its producer is named with it and with the place of the other split") {
  const std::vector<SplitNode> nodes = {node("dispatch", {}, 96), node("gate_grad", {0}),
                                        node("combine", {1}, 128)};
  const Finding finding = std::get<Finding>(propagateSplits(nodes, {128, 32}));
  CHECK(finding.at == 2);
  CHECK(finding.message == "node 'combine' cuts 'rows' by 128, but its producer 'gate_grad' cuts it by 96");
  CHECK(finding.noteAt == 0);
  CHECK(finding.note == "the split of 'dispatch' is set here");
}

TEST_CASE("nodes that share no tensor must still cut a space in one way") {
  const std::vector<SplitNode> nodes = {node("dispatch", {}, 96), node("other", {}, 128)};
  const Finding finding = std::get<Finding>(propagateSplits(nodes, {128, 32}));
  CHECK(finding.at == 1);
  CHECK_THAT(finding.message, Contains("but node 'dispatch' cuts it by 96"));
}

TEST_CASE("a slot of rows is a multiple of 16") {
  const std::vector<SplitNode> nodes = {node("dispatch", {}), node("up_proj", {0}, 100)};
  const Finding finding = std::get<Finding>(propagateSplits(nodes, {128, 32}));
  CHECK(finding.at == 1);
  CHECK_THAT(finding.message, Contains("node 'up_proj' cuts 'rows' by 100, expected a multiple of 16"));
}

TEST_CASE("rows are cut by two sizes where one is a multiple of the other") {
  const std::vector<SplitNode> nodes = {piecesNode("dispatch", {}), node("up_proj", {0}, 256),
                                        node("swiglu", {1}, 64), node("down_proj", {2}),
                                        piecesNode("combine", {3})};
  const auto sizes = std::get<SplitSizes>(propagateSplits(nodes, {128, 32}));
  CHECK(sizes == SplitSizes{64, 32, 256});
  CHECK(rowsOfNodes(nodes, sizes) == std::vector<int32_t>{64, 256, 64, 64, 64});
}

TEST_CASE("a node without a size has the smallest of its producers', and pieces have that of a slot") {
  const std::vector<SplitNode> nodes = {piecesNode("dispatch", {}), node("up_proj", {0}, 256),
                                        node("swiglu", {1}),        node("other", {0}, 128),
                                        node("sum", {1, 3}),        piecesNode("combine", {2})};
  const auto sizes = std::get<SplitSizes>(propagateSplits(nodes, {16, 32}));
  CHECK(rowsOfNodes(nodes, sizes) == std::vector<int32_t>{128, 256, 256, 128, 128, 128});
}

TEST_CASE("one size that is declared is that of all nodes") {
  const std::vector<SplitNode> nodes = {piecesNode("dispatch", {}), node("up_proj", {0}, 256),
                                        node("swiglu", {1}, 256)};
  const auto sizes = std::get<SplitSizes>(propagateSplits(nodes, {128, 32}));
  CHECK(sizes == SplitSizes{256, 32});
  CHECK(rowsOfNodes(nodes, sizes) == std::vector<int32_t>{256, 256, 256});
}

TEST_CASE("a third size of rows is refused with the two before") {
  const std::vector<SplitNode> nodes = {node("up_proj", {}, 128), node("swiglu", {0}, 64),
                                        node("down_proj", {1}, 256)};
  const Finding finding = std::get<Finding>(propagateSplits(nodes, {128, 32}));
  CHECK(finding.at == 2);
  CHECK(finding.noteAt == 1);
  CHECK(finding.message ==
        "node 'down_proj' cuts 'rows' by 256, but 'up_proj' cuts it by 128 and 'swiglu' by 64: expected two "
        "sizes at most");
}

TEST_CASE("pieces are not cut by the larger of two sizes") {
  const std::vector<SplitNode> nodes = {piecesNode("dispatch", {}), node("up_proj", {0}, 128),
                                        node("down_proj", {1}, 256), piecesNode("combine", {2}, 256)};
  const Finding finding = std::get<Finding>(propagateSplits(nodes, {128, 32}));
  CHECK(finding.at == 3);
  CHECK(finding.message ==
        "node 'combine' cuts 'rows' by 256, but node 'up_proj' cuts it by 128, and pieces are cut by the "
        "smaller size");
}

TEST_CASE("tokens are cut in one way") {
  const std::vector<SplitNode> nodes = {node("up_proj", {}, 0, 16), node("swiglu", {0}, 0, 32)};
  CHECK(std::get<Finding>(propagateSplits(nodes, {128, 32})).message ==
        "node 'swiglu' cuts 'tokens' by 32, but its producer 'up_proj' cuts it by 16");
}

TEST_CASE("a negative size is refused") {
  const std::vector<SplitNode> nodes = {node("dispatch", {}, -16)};
  CHECK_THAT(std::get<Finding>(propagateSplits(nodes, {128, 32})).message, Contains("cuts 'rows' by -16"));
}

}  // namespace
}  // namespace sluice

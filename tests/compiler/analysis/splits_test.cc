#include "compiler/analysis/splits.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

using Catch::Matchers::Contains;

SplitNode node(const char* name, std::vector<size_t> producers, int32_t rows = 0, int32_t tokens = 0) {
  return {name, std::move(producers), rows, tokens};
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
  CHECK_THAT(finding.message, Contains("'rows' is cut by 100, expected a multiple of 16"));
}

TEST_CASE("a negative size is refused") {
  const std::vector<SplitNode> nodes = {node("dispatch", {}, -16)};
  CHECK_THAT(std::get<Finding>(propagateSplits(nodes, {128, 32})).message, Contains("cuts 'rows' by -16"));
}

}  // namespace
}  // namespace sluice

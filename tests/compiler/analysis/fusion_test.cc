#include "compiler/analysis/fusion.h"

#include <catch2/catch.hpp>

namespace sluice {
namespace {

using Tensors = std::vector<size_t>;

FusionNode gmm(size_t rows, size_t product, float alpha = 1) {
  return {FusionRole::kGmm, alpha, {rows, 99}, {product}};
}
FusionNode scale(size_t value, size_t scaled, float alpha) {
  return {FusionRole::kScale, alpha, {value}, {scaled}};
}
FusionNode node(FusionRole role, Tensors reads, Tensors writes) {
  return {role, 1, std::move(reads), std::move(writes)};
}

FusionGraph graphOf(std::vector<FusionNode> nodes, const Tensors& kept = {}) {
  FusionGraph graph{std::move(nodes), std::vector<bool>(100)};
  for (size_t tensor : kept) graph.kept[tensor] = true;
  return graph;
}

TEST_CASE("an activation goes into the gmm that feeds it, which keeps its product only for others") {
  const FusionNode swiglu = node(FusionRole::kActivation, {1}, {2});
  const auto alone = fuseActivations(graphOf({gmm(0, 1), swiglu, gmm(2, 3)}));
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].gmm == 0);
  CHECK(alone[0].reader == 1);
  CHECK_FALSE(alone[0].keepsProduct);
  CHECK(fuseActivations(graphOf({gmm(0, 1), swiglu}, {1}))[0].keepsProduct);
  CHECK(fuseActivations(graphOf({gmm(0, 1), swiglu, gmm(1, 3)}))[0].keepsProduct);
  CHECK(fuseActivations(graphOf({gmm(0, 1), swiglu, node(FusionRole::kActivation, {1}, {3})})).size() == 1);
  CHECK(fuseActivations(graphOf({node(FusionRole::kOther, {0}, {1}), swiglu})).empty());
  CHECK(fuseActivations(graphOf({swiglu})).empty());
}

TEST_CASE("an activation gradient goes into a gmm whose product only it reads, as the incoming gradient") {
  const FusionNode grad = node(FusionRole::kActivationGrad, {1, 2}, {3});
  CHECK(fuseActivationGrads(graphOf({gmm(0, 1), grad})).size() == 1);
  CHECK(fuseActivationGrads(graphOf({gmm(0, 1), grad}, {1})).empty());
  CHECK(fuseActivationGrads(graphOf({gmm(0, 1), grad, gmm(1, 4)})).empty());
  CHECK(fuseActivationGrads(graphOf({gmm(0, 2), grad})).empty());
}

TEST_CASE(
    "a gmm with a bias takes the activation after it, but neither an activation gradient nor a factor of "
    "both") {
  const FusionNode biased = node(FusionRole::kBiasedGmm, {0, 99, 98}, {1});
  CHECK(fuseActivations(graphOf({biased, node(FusionRole::kActivation, {1}, {2})})).size() == 1);
  CHECK(fuseActivationGrads(graphOf({biased, node(FusionRole::kActivationGrad, {1, 2}, {3})})).empty());
  CHECK(foldScales(graphOf({biased, scale(1, 2, 0.5F)}, {2})).empty());
  const auto folded = foldScales(graphOf({scale(5, 0, 0.5F), biased}));
  REQUIRE(folded.size() == 1);
  CHECK(folded[0].into == Tensors{1});
}

TEST_CASE("a scale goes into the gmm before it if nobody else reads the product") {
  const auto folded = foldScales(graphOf({gmm(0, 1), scale(1, 2, 0.5F)}, {2}));
  REQUIRE(folded.size() == 1);
  CHECK(folded[0].scale == 1);
  CHECK(folded[0].into == Tensors{0});
  CHECK(folded[0].intoProducer);
  CHECK(foldScales(graphOf({gmm(0, 1), scale(1, 2, 0.5F)}, {1, 2})).empty());
  CHECK(foldScales(graphOf({gmm(0, 1), scale(1, 2, 0.5F), gmm(1, 3)}, {2})).empty());
}

TEST_CASE("a scale goes into all its readers if they are products, twice where it is read twice") {
  const FusionNode grad = node(FusionRole::kWeightGrad, {3, 1}, {4});
  const auto folded = foldScales(graphOf({scale(0, 1, -2), gmm(1, 2), grad}));
  REQUIRE(folded.size() == 1);
  CHECK(folded[0].into == Tensors{1, 2});
  CHECK_FALSE(folded[0].intoProducer);
  CHECK(foldScales(graphOf({scale(0, 1, 2), node(FusionRole::kWeightGrad, {1, 1}, {4})}))[0].into ==
        Tensors{0 + 1, 1});
  CHECK(foldScales(graphOf({scale(0, 1, 2), gmm(1, 2), node(FusionRole::kOther, {1}, {3})})).empty());
  CHECK(foldScales(graphOf({scale(0, 1, 2), gmm(1, 2)}, {1})).empty());
  CHECK(foldScales(graphOf({scale(0, 1, 2)})).empty());
}

TEST_CASE("scales in a row are folded one after the other") {
  const auto folded = foldScales(graphOf({gmm(0, 1), scale(1, 2, 2), scale(2, 3, 4)}, {3}));
  REQUIRE(folded.size() == 2);
  CHECK(folded[1].into == Tensors{0});
  const auto chain = foldScales(graphOf({scale(0, 1, 2), scale(1, 2, 4), gmm(2, 3)}));
  REQUIRE(chain.size() == 2);  // the first one is read by a product after the second is folded
  CHECK(chain[0].scale == 1);
  CHECK(chain[1].scale == 0);
  CHECK(chain[1].into == Tensors{2});
}

TEST_CASE("only factors that round nothing are folded") {
  for (float alpha : {1.5F, 3.0F, 0.1F})
    CHECK(foldScales(graphOf({gmm(0, 1), scale(1, 2, alpha)}, {2})).empty());
  CHECK(foldScales(graphOf({gmm(0, 1, 0x1p127F), scale(1, 2, 2)}, {2})).empty());
  CHECK(foldScales(graphOf({gmm(0, 1, 0.3F), scale(1, 2, 0.25F)}, {2})).size() == 1);
}

TEST_CASE("kinds of fusion are read from their words") {
  FusionKinds kinds;
  const auto parse = [&](std::vector<std::string> words) { return parseFusionKinds(words, kinds); };
  CHECK(parse({"none"}).empty());
  CHECK(kinds == FusionKinds{false, false, false});
  CHECK(parse({"all"}).empty());
  CHECK(kinds == FusionKinds{true, true, true});
  CHECK(parse({}).empty());
  CHECK(kinds == FusionKinds{true, true, true});
  CHECK(parse({"scale", "activation-grad"}).empty());
  CHECK(kinds == FusionKinds{false, true, true});
  CHECK(parse({"activation", "casts"}) == "casts");
  CHECK(parse({"all", "scale"}) == "all");
  CHECK(parse({""}) == "an empty word");
}

}  // namespace
}  // namespace sluice

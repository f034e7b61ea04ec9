// Layers whose experts have several places: put together, they compute what the layer without copies does.
#include "runtime/routing/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "tests/layer/whole_layer.h"

namespace sluice {
namespace {

constexpr int kExperts = 7, kTokens = 90;

struct Ranks {
  int ep, tp;
  const char* tokens;
  std::vector<int64_t> counts;
};

CompileOptions optionsOf(const Ranks& ranks, int spare) {
  CompileOptions options{.words = {{"tokens", ranks.tokens}, {"activation", "reglu"}},
                         .trainable = std::vector<std::string>{"all"}};
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"ep", ranks.ep},
                                    {"tp", ranks.tp},
                                    {"experts", kExperts},
                                    {"spare", spare},
                                    {"top_k", 3},
                                    {"hidden", 24},
                                    {"intermediate", 24},
                                    {"max_tokens", kTokens}})
    options.sets.emplace_back(name, value);
  return options;
}

Program compileLayer(const Ranks& ranks, int spare) {
  return compileGraph("forward.json", optionsOf(ranks, spare));
}

const Ranks kAlone{1, 1, "own", {kTokens}};

std::vector<int32_t> drawPlaces(std::mt19937& random, int spare) {
  std::vector<int32_t> expertAt;
  for (int32_t place = 0; place < kExperts + spare; ++place)
    expertAt.push_back(place < kExperts ? place : static_cast<int32_t>(random() % kExperts));
  std::shuffle(expertAt.begin(), expertAt.end(), random);
  return expertAt;
}

bool isWeight(const tools::Tensor& tensor) { return tensor.shape().size() == 3; }

// The weights of experts at their places, and the placement.
LayerData place(const LayerData& whole, const std::vector<int32_t>& expertAt) {
  LayerData placed;
  placed.tokens = whole.tokens;
  placed.inputs.resize(1);
  for (const auto& [name, tensor] : whole.inputs[0]) {
    std::vector<int64_t> shape = tensor.shape();
    if (isWeight(tensor)) shape[0] = std::ssize(expertAt);
    tools::Tensor made(tensor.type(), shape);
    const int64_t bytes = isWeight(tensor) ? tensor.bytes() / kExperts : tensor.bytes();
    for (int64_t at = 0; at * bytes < made.bytes(); ++at)
      std::memcpy(made.data() + at * bytes,
                  tensor.data() + (isWeight(tensor) ? expertAt[static_cast<size_t>(at)] * bytes : 0),
                  static_cast<size_t>(bytes));
    placed.inputs[0].emplace(name, std::move(made));
  }
  tools::Tensor placement(DType::kI32, {std::ssize(expertAt)});
  std::copy(expertAt.begin(), expertAt.end(), placement.as<int32_t>());
  placed.inputs[0].emplace("placement", std::move(placement));
  return placed;
}

// The sums over the places of each expert.
tools::Tensor sumPlaces(const tools::Tensor& gradient, const std::vector<int32_t>& expertAt) {
  std::vector<int64_t> shape = gradient.shape();
  shape[0] = kExperts;
  tools::Tensor sums(gradient.type(), shape);
  std::memset(sums.data(), 0, static_cast<size_t>(sums.bytes()));
  const int64_t each = sums.elements() / kExperts;
  for (size_t at = 0; at < expertAt.size(); ++at)
    for (int64_t i = 0; i < each; ++i) {
      const int64_t to = expertAt[at] * each + i;
      const double term = elementAt(gradient.type(), gradient.data(), static_cast<int64_t>(at) * each + i);
      setElement(sums.type(), sums.data(), to,
                 static_cast<float>(elementAt(sums.type(), sums.data(), to) + term));
    }
  return sums;
}

TEST_CASE("where bf16 is exact, any placement gives the bits of the layer without copies") {
  const Program one = compileLayer(kAlone, 0);
  LayerData before = makeGraphData(
      one, {.tokens = {.counts = kAlone.counts}, .routing = {tools::RoutingKind::kZipf, 1.5}, .seed = 5});
  makeLayerExact(before);
  const LayerData expected = runOf(one, ContextOptions{.executor = ExecutorKind::kSerial}, before);
  const Ranks kRanks[] = {kAlone,
                          {2, 1, "own", {60, 30}},
                          {3, 1, "own", {40, 0, 50}},
                          {4, 1, "own", {1, 2, 17, 70}},
                          {2, 2, "own", {21, 0, 40, 29}},
                          {2, 2, "same", {71, 71, 19, 19}}};
  std::mt19937 random(3);
  for (const Ranks& ranks : kRanks)
    for (const int spare : {1, 2, 5}) {
      const std::vector<int32_t> expertAt = drawPlaces(random, spare);
      INFO(ranks.ep << " x " << ranks.tp << ", tokens " << ranks.tokens << ", " << spare << " spare");
      const Program program = compileLayer(ranks, spare);
      const LayerData start = splitLayer(program, place(before, expertAt), ranks.counts);
      const LayerData data = runOf(program, {.threads = 2, .pin = false}, start);
      CHECK(hashOutputs(runOf(program, {.threads = 1}, start)) == hashOutputs(data));
      const LayerData whole = joinRanks(program, data);
      for (const auto& [name, tensor] : expected.outputs[0]) {
        INFO(name);
        const tools::Tensor& found = whole.outputs[0].at(name);
        CHECK((isWeight(tensor) ? sameBits(sumPlaces(found, expertAt), tensor) : sameBits(found, tensor)));
      }
      for (const tools::OutputError& error : errorsOfGraph(program, data)) CHECK(error.relative == 0);
    }
}

TEST_CASE("made inputs of a skewed routing have places that even it out") {
  const Ranks ranks{4, 1, "own", std::vector<int64_t>(4, kTokens)};
  const Program program = compileLayer(ranks, 5);
  const LayerData before = makeGraphData(
      program, {.tokens = {.counts = ranks.counts}, .routing = {tools::RoutingKind::kZipf, 1.5}, .seed = 5});
  const LayerData data = runOf(program, {.threads = 1}, before);
  checkErrors(errorsOfGraph(program, data), program, data);
}

TEST_CASE("a bad placement is refused at all ranks, and the next step works") {
  const Ranks ranks{2, 1, "own", {20, 20}};
  const Program program = compileLayer(ranks, 2);
  const auto make = [&] { return makeGraphData(program, {.tokens = {.counts = ranks.counts}, .seed = 5}); };
  const auto refusal = [&](const std::function<void(LayerData&)>& spoil) {
    LayerData bad = make(), data = make();
    spoil(bad);
    std::vector<std::string> messages(2);
    const std::vector<Status> ends =
        runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
          if (Status bound = bindAll(bad, rank, context); !bound) return bound;
          messages[rank] = context.run("forward").error().message;
          if (Status bound = bindAll(data, rank, context); !bound) return bound;
          return context.run("forward");
        });
    for (const Status& end : ends) CHECK(end.ok());
    CHECK(messages[0] == messages[1]);
    return messages[0];
  };
  const auto setPlace = [](int rank, int place, int32_t expert) {
    return [=](LayerData& data) { data.inputs[rank].at("placement").as<int32_t>()[place] = expert; };
  };
  CHECK(refusal(setPlace(1, 3, kExperts)) ==
        "rank 1: tensor 'placement': place 3 has expert 7, expected 0 to 6");
  CHECK(refusal([&](LayerData& data) {
          std::fill_n(data.inputs[0].at("placement").as<int32_t>(), kExperts + 2, 6);
        }) == "rank 0: tensor 'placement': expert 0 has no place, expected at least one of 9");
  CHECK_THAT(refusal([&](LayerData& data) {
               auto* const experts = data.inputs[1].at("placement").as<int32_t>();
               std::reverse(experts, experts + kExperts + 2);
             }),
             Catch::Matchers::Matches("rank 1 runs entry 'forward' with another placement of experts than "
                                      "rank 0: digest [0-9a-f]{16}, but [0-9a-f]{16} at rank 0"));
  CHECK(refusal([&](LayerData& data) { data.inputs[1].at("expert_ids").as<int32_t>()[0] = kExperts; }) ==
        "rank 1: expert_ids[0,0] is 7, expected -1 (masked) or 0 to 6");
}

}  // namespace
}  // namespace sluice

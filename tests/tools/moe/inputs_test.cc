#include "tools/moe/inputs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "tests/testing/moe/dims.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/parts.h"
#include "tools/moe/random.h"
#include "tools/moe/shard.h"

namespace sluice::tools {
namespace {

const MoeDims kDims{2, 16, 4, 200, 24, 20};

std::vector<int32_t> idsOf(const char* routing, const MoeDims& dims = kDims, int rank = 0) {
  InputsSpec spec;
  spec.routing = *parseRouting(routing);
  const TensorMap map = makeInputs(dims, spec, rank, dims.maxTokens);
  const Tensor& ids = map.at("expert_ids");
  return {ids.as<int32_t>(), ids.as<int32_t>() + ids.elements()};
}

std::vector<int> rowsOfExperts(const std::vector<int32_t>& ids) {
  std::vector<int> rows(static_cast<size_t>(kDims.experts));
  for (int32_t id : ids)
    if (id >= 0) ++rows[static_cast<size_t>(id)];
  return rows;
}

TEST_CASE("experts of one token are distinct and in range under every routing") {
  for (const char* routing : {"uniform", "zipf:1.2", "zipf:100", "onehot", "half-empty", "masked",
                              "hot-rank:0", "hot-rank:1.3", "hot-rank:2"}) {
    INFO(routing);
    const std::vector<int32_t> ids = idsOf(routing);
    for (size_t t = 0; t < ids.size(); t += 4) {
      std::set<int32_t> seen;
      for (size_t k = 0; k < 4; ++k) {
        CHECK(ids[t + k] >= -1);
        CHECK(ids[t + k] < kDims.experts);
        CHECK((ids[t + k] == -1 || seen.insert(ids[t + k]).second));
      }
    }
  }
}

TEST_CASE("each routing has the shape of its name") {
  std::vector<int> uniform = rowsOfExperts(idsOf("uniform"));
  CHECK(*std::min_element(uniform.begin(), uniform.end()) > 20);  // 50 expected
  std::vector<int> zipf = rowsOfExperts(idsOf("zipf:1.2"));
  std::sort(zipf.begin(), zipf.end());
  CHECK(zipf.back() > 5 * zipf.front());
  const std::vector<int> hot = rowsOfExperts(idsOf("onehot"));
  CHECK(*std::max_element(hot.begin(), hot.end()) == 200);
  CHECK(std::count(hot.begin(), hot.end(), 0) == 15);
  CHECK(idsOf("onehot", kDims, 0) == idsOf("onehot", kDims, 1));
  const std::vector<int> half = rowsOfExperts(idsOf("half-empty"));
  CHECK(std::all_of(half.begin(), half.begin() + 8, [](int n) { return n > 0; }));
  CHECK(std::all_of(half.begin() + 8, half.end(), [](int n) { return n == 0; }));
  const std::vector<int32_t> masked = idsOf("masked");
  const auto gone = std::count(masked.begin(), masked.end(), -1);
  CHECK(gone > 120);
  CHECK(gone < 280);
}

TEST_CASE("a hot rank has its multiple of the mean rows, and its experts share them evenly") {
  for (const double factor : {0.0, 0.5, 1.3, 2.0}) {
    const std::vector<int> rows = rowsOfExperts(idsOf(("hot-rank:" + std::to_string(factor)).c_str()));
    const double hot = std::accumulate(rows.begin(), rows.begin() + 8, 0.0);
    CHECK(hot == Approx(factor * 400).margin(1));
    const auto [least, most] = std::minmax_element(rows.begin(), rows.begin() + 8);
    CHECK(*most - *least <= 40);
  }
  const TaskProgram program = buildMoeProgram({.ranks = 8, .experts = 48, .topK = 8, .maxTokens = 64});
  const auto errorOf = [&](const char* routing) {
    const Status fits = checkRouting(program, *parseRouting(routing));
    return fits ? "" : fits.error().message;
  };
  CHECK(errorOf("hot-rank:0") == "");
  CHECK(errorOf("hot-rank:6") == "");
  CHECK(
      errorOf("hot-rank:6.1") ==
      "found routing hot-rank:6.1, expected 0 to 6 times the mean rows, for 6 experts of 48 at the rank and "
      "top_k 8");
  CHECK(checkRouting(buildMoeProgram({.ranks = 1}), *parseRouting("hot-rank:1")));
  CHECK_FALSE(checkRouting(buildMoeProgram({.ranks = 1}), *parseRouting("hot-rank:0.9")));
  CHECK_FALSE(parseRouting("hot-rank:"));
  CHECK_FALSE(parseRouting("hot-rank:nan"));
  CHECK_FALSE(parseRouting("hot-rank:-1"));
}

TEST_CASE("half-empty routing still finds K experts where K is more than half of them") {
  const MoeDims dims{1, 4, 3, 5, 8, 8};
  CHECK(idsOf("half-empty", dims).size() == 15);
}

TEST_CASE("expert weights are positive and sum to 1, and tensors have the scale that was said") {
  const TensorMap map = makeInputs(kDims, {}, 1, 200);
  const Tensor& weights = map.at("expert_weights");
  for (int64_t t = 0; t < weights.elements(); t += 4) {
    double sum = 0;
    for (int64_t k = 0; k < 4; ++k) {
      CHECK(weights.as<float>()[t + k] > 0);
      sum += weights.as<float>()[t + k];
    }
    CHECK(sum == Approx(1).margin(1e-6));
  }
  const auto variance = [&](const char* name) {
    const Tensor& tensor = map.at(name);
    double sum = 0;
    for (int64_t i = 0; i < tensor.elements(); ++i) sum += std::pow(toFloat(tensor.as<BFloat16>()[i]), 2);
    return sum / static_cast<double>(tensor.elements());
  };
  CHECK(variance("x") == Approx(1).epsilon(0.1));
  CHECK(variance("gate_up_weight") == Approx(1.0 / 24).epsilon(0.1));
  CHECK(variance("down_weight") == Approx(1.0 / 20).epsilon(0.1));
}

TEST_CASE("a seed gives the same bits, another seed or rank others") {
  const auto bits = [](uint64_t seed, int rank) {
    InputsSpec spec;
    spec.seed = seed;
    const TensorMap map = makeInputs(kDims, spec, rank, 7);
    std::string all;
    for (const auto& [name, tensor] : map)
      all.append(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
    return all;
  };
  CHECK(bits(1, 0) == bits(1, 0));
  CHECK(bits(1, 0) != bits(2, 0));
  CHECK(bits(1, 0) != bits(1, 1));
}

TEST_CASE("tokens are the same, ragged or given for each rank") {
  const auto counts = [](const char* text) {
    InputsSpec spec;
    spec.tokens = *parseTokens(text);
    return tokensOfRanks(sketchOf(kDims), spec);
  };
  CHECK(*counts("7") == std::vector<int64_t>{7, 7});
  CHECK(*counts("0,3") == std::vector<int64_t>{0, 3});
  const std::vector<int64_t> ragged = *counts("ragged:100");
  for (int64_t count : ragged) {
    CHECK(count >= 25);
    CHECK(count <= 100);
  }
  CHECK(ragged[0] != ragged[1]);
  CHECK(counts("201").error().message.find("expected at most 200") != std::string::npos);
  CHECK(counts("1,2,3").error().message.find("one for each of 2 ranks") != std::string::npos);
}

bool sameBits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0);
}

// The layer of kDims on groups of tp ranks, with a low-rank factor that all ranks of a group have whole, and
// gradients that a run adds to.
TaskProgram sharedBy(int tp, TokenHolders tokens) {
  TaskProgram program = sketchOf(kDims);
  program.mesh = {kDims.ranks, tp, tokens};
  for (Buffer& buffer : program.buffers) {
    if (buffer.name == "gate_up_weight") {
      buffer.sharding = Sharding::kGateUpColumns;
      buffer.shape[2].size /= tp;
    }
    if (buffer.name == "down_weight") {
      buffer.sharding = Sharding::kRows;
      buffer.shape[1].size /= tp;
    }
  }
  for (Family& family : program.families)
    if (family.tiling.k == kDims.inter) family.tiling.k /= tp;
  const auto fixed = [](int64_t size) { return Dim{Extent::kFixed, size}; };
  const auto add = [&](const char* name, Role role, Sharding sharding, std::vector<Dim> shape) {
    program.buffers.push_back({name, DType::kF32, std::move(shape), role, {}, 0, sharding});
    return BufferId{static_cast<uint32_t>(program.buffers.size() - 1)};
  };
  const Dim experts{Extent::kExperts, 0};
  add("factor", Role::kInput, Sharding::kWhole, {experts, fixed(24), fixed(4)});
  for (const auto& [name, sharding, inter] : {std::tuple("whole_grad", Sharding::kPartial, int64_t{20}),
                                              {"down_weight_grad", Sharding::kRows, 20 / tp}}) {
    Family family;
    family.op = OpKind::kGmmWeightGrad;
    family.tiling.flags = 1;
    family.writes = {add(name, Role::kOutput, sharding, {experts, fixed(inter), fixed(24)})};
    program.families.push_back(std::move(family));
  }
  return program;
}

const InputsSpec kMasked{.tokens = {.ragged = true, .most = 90}, .routing = {RoutingKind::kMasked, 0}};

TEST_CASE("the ranks of a group have parts of the tensors of one rank, whatever their number") {
  const TaskProgram alone = sharedBy(1, TokenHolders::kOwn);
  for (int tp : {2, 4})
    for (TokenHolders tokens : {TokenHolders::kOwn, TokenHolders::kSame}) {
      const TaskProgram program = sharedBy(tp, tokens);
      for (int group = 0; group < 2; ++group) {
        const TensorMap whole = *makeProgramInputs(alone, kMasked, group, 50);
        std::vector<TensorMap> ranks;
        for (int part = 0; part < tp; ++part)
          ranks.push_back(*makeProgramInputs(program, kMasked, group * tp + part, 50));
        for (const Buffer& buffer : program.buffers) {
          INFO(buffer.name << " of group " << group << " of " << tp);
          std::vector<const Tensor*> parts;
          for (const TensorMap& rank : ranks) parts.push_back(&rank.at(buffer.name));
          const bool own = tokens == TokenHolders::kOwn && buffer.shape[0].extent == Extent::kTokens;
          if (own) {
            CHECK_FALSE(sameBits(*parts[0], *parts[1]));
            continue;
          }
          CHECK(sameBits(joinParts(parts, buffer.sharding), whole.at(buffer.name)));
          for (const Tensor* part : parts)
            CHECK((buffer.sharding == Sharding::kWhole) == sameBits(*part, whole.at(buffer.name)));
        }
      }
    }
}

TEST_CASE("ranks that have the same tokens have the same numbers of them") {
  const TaskProgram program = sharedBy(2, TokenHolders::kSame);
  const std::vector<int64_t> ragged = *tokensOfRanks(program, kMasked);
  CHECK(ragged[0] == ragged[1]);
  CHECK(ragged[2] == ragged[3]);
  CHECK(ragged[0] != ragged[2]);
  const std::vector<int64_t> own = *tokensOfRanks(sharedBy(2, TokenHolders::kOwn), kMasked);
  CHECK(own[0] != own[1]);
  const auto given = [&](const char* text) {
    InputsSpec spec;
    spec.tokens = *parseTokens(text);
    return tokensOfRanks(program, spec);
  };
  CHECK(*given("7,7,0,0") == std::vector<int64_t>{7, 7, 0, 0});
  CHECK(given("7,7,0,3").error().message ==
        "found 3 tokens for rank 3, expected 0 as for rank 2, since ranks of a group have the same tokens");
}

TEST_CASE("texts that name no routing or tokens are refused") {
  for (const char* text :
       {"", "zipf", "zipf:", "zipf:-1", "zipf:x", "zipf:nan", "zipf:1e9", "Uniform", "onehot "})
    CHECK_FALSE(parseRouting(text).ok());
  for (const char* text :
       {"", "-1", "1.5", "ragged", "ragged:", "ragged:1,2", "1,", ",1", "99999999999999999999"})
    CHECK_FALSE(parseTokens(text).ok());
}

TEST_CASE("the cheap normal numbers have mean 0 and variance 1") {
  Random random(5, 5);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double v = random.normal();
    sum += v;
    squares += v * v;
  }
  CHECK(std::abs(sum / 1e5) < 0.02);
  CHECK(squares / 1e5 == Approx(1).epsilon(0.02));
}

TEST_CASE("a program of the layer has the inputs of the layer, bit for bit") {
  const TaskProgram program = buildMoeProgram({.ranks = 2});
  const MoeDims dims = *moeDimsOf(program);
  const TensorMap layer = makeInputs(dims, {}, 1, 9), made = *makeProgramInputs(program, {}, 1, 9);
  REQUIRE(made.size() == layer.size());
  for (const auto& [name, tensor] : layer) {
    INFO(name);
    REQUIRE(made.at(name).shape() == tensor.shape());
    CHECK(std::memcmp(made.at(name).data(), tensor.data(), static_cast<size_t>(tensor.bytes())) == 0);
  }
}

TEST_CASE("inputs of other names have bits of their own, and rows cannot be made") {
  TaskProgram program = buildMoeProgram({.ranks = 2});
  const auto add = [&](const char* name, DType type, std::vector<Dim> shape) {
    program.buffers.push_back({name, type, std::move(shape), Role::kInput, {}});
  };
  const Dim tokens{Extent::kTokens, 0}, wide{Extent::kFixed, 32};
  add("a", DType::kBF16, {tokens, wide});
  add("b", DType::kBF16, {tokens, wide});
  const auto bits = [&](const char* name, int rank) {
    const TensorMap made = *makeProgramInputs(program, {}, rank, 9);
    const Tensor& tensor = made.at(name);
    return std::string(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
  };
  CHECK(bits("a", 0) == bits("a", 0));
  CHECK(bits("a", 0) != bits("b", 0));
  CHECK(bits("a", 0) != bits("a", 1));
  CHECK(bits("a", 0) != bits("x", 0));
  add("rows", DType::kBF16, {{Extent::kRows, 0}, wide});
  CHECK(makeProgramInputs(program, {}, 0, 9).error().message ==
        "cannot make tensor 'rows': it is the result of another run, or no op reads it");
}

}  // namespace
}  // namespace sluice::tools

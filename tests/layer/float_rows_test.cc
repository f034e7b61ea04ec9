// Rows of float32 that travel beside those of bf16, with one routing: the formulas of the graph in double
// precision, and the same bits for any number of ranks.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "tests/layer/whole_layer.h"

namespace sluice {
namespace {

struct Shape {
  int ranks = 1, experts = 6, topK = 3, hidden = 40, side = 21, marks = 5, maxTokens = 90;
  bool trained = false;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.ranks << " ranks, " << s.experts << " experts, top_k " << s.topK << ", columns " << s.hidden
             << ", " << s.side << ", " << s.marks << (s.trained ? ", trained" : "");
}

CompileOptions optionsOf(const Shape& s) {
  CompileOptions options{.sets = {{"ep", s.ranks},
                                  {"experts", s.experts},
                                  {"top_k", s.topK},
                                  {"hidden", s.hidden},
                                  {"side", s.side},
                                  {"marks", s.marks},
                                  {"max_tokens", s.maxTokens}}};
  if (s.trained) options.trainable = {"x", "side"};
  return options;
}

std::filesystem::path graphFile() { return std::filesystem::absolute("tests/layer/float_rows.json"); }

Program compileRows(const CompileOptions& options) { return compileGraph(graphFile(), options); }

// All tokens at one rank.
LayerData wholeOf(const Shape& shape, const std::vector<int64_t>& counts, uint32_t seed) {
  Shape one = shape;
  one.ranks = 1;
  one.maxTokens = shape.ranks * shape.maxTokens;
  int64_t tokens = 0;
  for (int64_t count : counts) tokens += count;
  return makeGraphData(
      compileRows(optionsOf(one)),
      {.tokens = {.counts = {tokens}}, .routing = {tools::RoutingKind::kMasked, 0}, .seed = seed});
}

using Numbers = std::vector<double>;

Numbers numbersOf(const tools::Tensor& tensor) {
  Numbers numbers;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    numbers.push_back(elementAt(tensor.type(), tensor.data(), i));
  return numbers;
}

// alpha * sum over k of weight * row, for every token; the weight of a masked pair is 0.
Numbers sumOf(const Numbers& rows, const Numbers& weights, size_t topK, double alpha) {
  const size_t tokens = weights.size() / topK, columns = tokens == 0 ? 0 : rows.size() / tokens;
  Numbers sum(rows.size());
  for (size_t i = 0; i < sum.size(); ++i)
    for (size_t k = 0; k < topK; ++k) sum[i] += alpha * weights[i / columns * topK + k] * rows[i];
  return sum;
}

std::map<std::string, Numbers> formulasOf(const Shape& s, const LayerData& whole) {
  const auto input = [&](const char* name) { return numbersOf(whole.inputs[0].at(name)); };
  const Numbers ids = input("expert_ids"), bias = input("side_bias");
  Numbers weights = input("expert_weights"), ones(ids.size(), 1);
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0) weights[i] = ones[i] = 0;
  const auto k = static_cast<size_t>(s.topK);
  std::map<std::string, Numbers> of;
  of["y"] = sumOf(input("x"), weights, k, 2);
  of["side_sum"] = sumOf(input("side"), weights, k, -0.5);
  for (size_t i = 0; i < of["side_sum"].size(); ++i) of["side_sum"][i] += bias[i % bias.size()];
  of["marks_sum"] = sumOf(input("marks"), ones, k, 4);
  of["sent_weights"] = weights;
  if (!s.trained) return of;
  of["dx"] = sumOf(input("dy"), weights, k, 2);
  of["d_side"] = sumOf(input("d_side_sum"), weights, k, -0.5);
  return of;
}

double errorOf(const Numbers& found, const Numbers& expected) {
  REQUIRE(found.size() == expected.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

TEST_CASE("rows of float32 and of bf16 beside them are sent, scaled, returned and summed") {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  for (int number = 0; number < 24; ++number) {
    Shape shape{.ranks = 1 + number % 4, .trained = number % 3 != 0};
    shape.experts = pick(1, 3 * shape.ranks);
    shape.topK = pick(1, std::min(4, shape.experts));
    shape.hidden = pick(1, 90), shape.side = pick(1, 90);
    shape.marks = number % 2 == 0 ? 16 * pick(1, 4) : pick(1, 15);
    INFO(shape);
    std::vector<int64_t> counts;
    for (int rank = 0; rank < shape.ranks; ++rank)
      counts.push_back(pick(0, 4) == 0 ? 0 : pick(1, shape.maxTokens));
    CompileOptions options = optionsOf(shape);
    options.cores = pick(0, 4);
    options.slotRows = 16 * pick(0, 3);
    const Program program = compileRows(options);
    const LayerData whole = wholeOf(shape, counts, static_cast<uint32_t>(number));
    const LayerData before = splitLayer(program, whole, counts);
    const auto expected = formulasOf(shape, whole);
    onEveryIsa([&] {
      const LayerData data = runOf(program, {.threads = 3, .pin = false}, before);
      const LayerData joined = joinRanks(program, data);
      CHECK(joined.outputs[0].size() == expected.size());
      for (const auto& [name, tensor] : joined.outputs[0]) {
        INFO(name);
        CHECK(errorOf(numbersOf(tensor), expected.at(name)) < (tensor.type() == DType::kF32 ? 1e-6 : 1.2e-2));
      }
      for (const tools::OutputError& error : errorsOfGraph(program, data)) {
        INFO(error.name);
        CHECK(error.relative <
              (data.outputs[0].at(std::string(error.name)).type() == DType::kF32 ? 1e-6 : 1.2e-2));
      }
      CHECK(hashOutputs(runOf(program, {.threads = 1}, before)) == hashOutputs(data));
      CHECK(hashOutputs(runOf(program, kSerial, before)) == hashOutputs(data));
    });
  }
}

// Numbers whose sums are exact: bf16 ones are -1, 0 and 1, weights are powers of two, and other floats have
// 18 bits, which bf16 has not.
void makeExact(LayerData& whole) {
  for (auto& [name, tensor] : whole.inputs[0])
    for (int64_t i = 0; tensor.type() != DType::kI32 && i < tensor.elements(); ++i) {
      const double value = elementAt(tensor.type(), tensor.data(), i);
      const double power = value < 0.3 ? 0.5 : value < 0.6 ? 1 : 2;
      const double sign = value < -0.7 ? -1 : value > 0.7 ? 1 : 0;
      const double number = name == "expert_weights"       ? power
                            : tensor.type() == DType::kF32 ? std::round(std::fmod(value, 1) * 0x3ffff)
                                                           : sign;
      setElement(tensor.type(), tensor.data(), i, static_cast<float>(number));
    }
}

TEST_CASE("where sums are exact, any number of ranks gives every bit of the formulas") {
  for (const auto& counts : std::vector<std::vector<int64_t>>{
           {120}, {77, 43}, {120, 0}, {1, 2, 117}, {0, 60, 60}, {30, 30, 30, 30}, {1, 2, 17, 100}}) {
    Shape shape{.ranks = static_cast<int>(counts.size()), .maxTokens = 120, .trained = true};
    shape.experts = 7;
    INFO(shape);
    const Program program = compileRows(optionsOf(shape));
    LayerData whole = wholeOf(shape, counts, 3);
    makeExact(whole);
    const auto expected = formulasOf(shape, whole);
    onEveryIsa([&] {
      const LayerData data = runOf(program, {.threads = 2, .pin = false}, splitLayer(program, whole, counts));
      const LayerData joined = joinRanks(program, data);
      for (const auto& [name, tensor] : joined.outputs[0]) {
        INFO(name);
        CHECK(numbersOf(tensor) == expected.at(name));
        CHECK(errorOf(expected.at(name), Numbers(expected.at(name).size())) > 1);
      }
    });
  }
}

TEST_CASE("any 32 bits pass to the rows of their experts, in the order of expert, rank and token") {
  const Shape shape{.ranks = 3, .experts = 4, .topK = 2, .marks = 7};
  const std::vector<int64_t> counts = {23, 0, 41};
  const Program program = compileRows(optionsOf(shape));
  LayerData data = splitLayer(program, wholeOf(shape, counts, 5), counts);
  std::mt19937 random(9);
  for (tools::TensorMap& inputs : data.inputs)
    for (int64_t i = 0; i < inputs.at("marks").elements(); ++i) {
      const uint32_t bits =
          i % 5 == 0 ? 0x7f800001u + i : random();  // NaN that signals, subnormal numbers, ...
      std::memcpy(inputs.at("marks").data() + 4 * i, &bits, 4);
    }
  const auto expectedRows = [&](int rank) {
    std::string rows;
    const ExpertDeal deal{program.tables().mesh, shape.experts};
    for (int expert = 0; expert < shape.experts; ++expert)
      for (int source = 0; source < shape.ranks && deal.owner(expert) == rank; ++source) {
        const int32_t* const ids = data.inputs[source].at("expert_ids").as<int32_t>();
        const auto* const marks = reinterpret_cast<const char*>(data.inputs[source].at("marks").data());
        for (int64_t pair = 0; pair < counts[source] * shape.topK; ++pair)
          if (ids[pair] == expert) rows.append(marks + pair / shape.topK * 28, 28);
      }
    return rows;
  };
  onEveryIsa([&] {
    std::vector<std::string> found(3);
    const auto results = runRanks(program, {.threads = 2}, [&](int rank, Context& context) -> Status {
      if (Status bound = bindAll(data, rank, context); !bound) return bound;
      if (Status ran = context.run("forward"); !ran) return ran;
      const auto rows = context.output("rows_marks");
      if (!rows) return rows.error();
      found[rank].assign(static_cast<const char*>(rows->data), static_cast<size_t>(rows->bytes()));
      return {};
    });
    for (int rank = 0; rank < 3; ++rank) {
      INFO("rank " << rank << (results[rank] ? "" : ": " + results[rank].error().message));
      CHECK(results[rank].ok());
      CHECK(found[rank].size() > 28);
      CHECK(found[rank] == expectedRows(rank));
    }
  });
}

std::string refusalOf(const std::vector<std::string>& trainable) {
  CompileOptions options = optionsOf({});
  options.trainable = trainable;
  const auto tables = compile(graphFile(), *loadTarget("targets/cpu.json", {}), options);
  return tables ? "accepted" : tables.error().message;
}

TEST_CASE("gradients of float32 rows for which there is no op are refused, with the node") {
  CHECK_THAT(refusalOf({"marks"}),
             Catch::Contains("node 'combine_marks' gives scalars that need a gradient"));
  CHECK_THAT(refusalOf({"side_bias"}), Catch::Contains("node 'side_bias_grad': a is [T x 21 x f32]"));
  CHECK_THAT(refusalOf({"expert_weights"}), Catch::Contains("node '"));
}

}  // namespace
}  // namespace sluice

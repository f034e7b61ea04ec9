// Column- and row-parallel linear layers: the formulas of the layer in double precision, one rank that has
// all, and the same bits for any number of ranks where bf16 is exact.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>

#include "tests/layer/random_draws.h"
#include "tests/layer/whole_layer.h"

namespace sluice {
namespace {

struct Linear {
  bool column = true;
  int tp = 1;
  const char* tokens = "own";
  bool bias = false;
  int in = 24, out = 24, maxTokens = 40;
  const char* keep = "all";
  bool accumulate = false;

  bool hasSameTokens() const { return std::string(tokens) == "same"; }
  std::string graph() const {
    return std::string("linear/") + (column ? "column" : "row") + "_parallel" + (bias ? "_bias" : "") +
           ".json";
  }
  // All its tokens and columns at one rank.
  Linear alone() const {
    Linear one = *this;
    one.tp = 1;
    one.maxTokens = tp * maxTokens;
    return one;
  }
};

std::ostream& operator<<(std::ostream& out, const Linear& l) {
  return out << l.graph() << ", tp " << l.tp << ", " << l.tokens << " tokens, " << l.in << " -> " << l.out
             << ", keep " << l.keep << (l.accumulate ? ", accumulated" : "");
}

CompileOptions optionsOf(const Linear& l) {
  CompileOptions options{.sets = {{"tp", l.tp}, {"in", l.in}, {"out", l.out}, {"max_tokens", l.maxTokens}},
                         .words = {{"tokens", l.tokens}},
                         .trainable = std::vector<std::string>{"all"}};
  options.keep = l.keep;
  options.accumulate = l.accumulate;
  return options;
}

Program compileLinear(const Linear& l) { return compileGraph(l.graph(), optionsOf(l)); }

class RandomLinears : RandomDraws {
 public:
  using RandomDraws::RandomDraws;

  Linear linear(int number) {
    static constexpr const char* kKeeps[] = {"all", "minimal", "regather"};
    Linear l{.column = number % 2 == 0, .tp = pick(1, 4), .tokens = pick(0, 1) == 0 ? "own" : "same"};
    l.bias = pick(0, 1) == 1;
    l.in = pick(17, 90), l.out = pick(17, 90);
    (l.column ? l.out : l.in) = l.tp * pick(5, 25);
    l.maxTokens = pick(10, 60);
    l.keep = kKeeps[pick(0, 2)];
    l.accumulate = pick(0, 2) == 0;
    return l;
  }

  tools::InputsSpec spec(const Linear& l) {
    return {.tokens = tokens(l.tp, l.maxTokens, l.hasSameTokens() ? l.tp : 1), .seed = seed()};
  }

  CompileOptions options(const Linear& l) { return cut(optionsOf(l)); }
};

using Numbers = std::vector<double>;

Numbers numbersOf(const tools::Tensor& tensor) {
  Numbers numbers;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    numbers.push_back(elementAt(tensor.type(), tensor.data(), i));
  return numbers;
}

// y = x W^T + b, dx = dy W, dW = dy^T x, db = column sums of dy, for a layer that one rank has whole;
// gradients are added to what `start` has of them.
std::map<std::string, Numbers> formulasOf(const Linear& l, const LayerData& whole,
                                          const tools::TensorMap& start) {
  const int64_t in = l.in, out = l.out;
  const auto input = [&](const char* name) { return numbersOf(whole.inputs[0].at(name)); };
  const Numbers x = input("x"), w = input("weight"), dy = input("dy");
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  std::map<std::string, Numbers> of;
  Numbers& y = of["y"];
  Numbers& dx = of["dx"];
  Numbers& dw = of["weight_grad"];
  y.resize(rows * out), dx.resize(rows * in), dw.resize(out * in);
  const Numbers bias = l.bias ? input("bias") : Numbers(out);
  Numbers db(out);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        y[r * out + o] += x[r * in + i] * w[o * in + i];
        dx[r * in + i] += dy[r * out + o] * w[o * in + i];
        dw[o * in + i] += dy[r * out + o] * x[r * in + i];
      }
      y[r * out + o] += bias[o];
      db[o] += dy[r * out + o];
    }
  if (l.bias) of["bias_grad"] = db;
  for (auto& [name, gradient] : of)
    if (const auto it = start.find(name); l.accumulate && it != start.end()) {
      const Numbers before = numbersOf(it->second);
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += before[i];
    }
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

TEST_CASE("random linear layers compute, put together, what the formulas give for whole weights") {
  RandomLinears random(5);
  int shared = 0;
  for (int number = 0; number < 40; ++number) {
    const Linear linear = random.linear(number);
    INFO(linear);
    shared += linear.tp > 1;
    const Program program = compileGraph(linear.graph(), random.options(linear));
    const LayerData before = makeGraphData(program, random.spec(linear));
    const LayerData wholeBefore = joinRanks(program, before);
    const auto expected = formulasOf(linear, wholeBefore, wholeBefore.outputs[0]);
    onEveryIsa([&] {
      const LayerData data = runOf(program, {.threads = 3, .pin = false}, before);
      const LayerData whole = joinRanks(program, data);
      CHECK(whole.outputs[0].size() == expected.size());
      for (const auto& [name, tensor] : whole.outputs[0]) {
        INFO(name);
        CHECK(errorOf(numbersOf(tensor), expected.at(name)) < 1.2e-2);
      }
      LayerData judged = runOf(program, {.threads = 2, .pin = false}, before);
      judged.inputs = runOf(program, kSerial, before).inputs;
      checkErrors(errorsOfGraph(program, judged), program, judged);
      CHECK(hashOutputs(judged) == hashOutputs(data));
      CHECK(hashOutputs(runOf(program, {.threads = 1}, before)) == hashOutputs(data));
      CHECK(hashOutputs(runOf(program, kSerial, before)) == hashOutputs(data));
    });
  }
  CHECK(shared >= 20);
}

// -1, 0 and 1, most of them 0: bf16 stores every number of the layer exactly.
void makeExact(LayerData& whole) {
  for (auto& [name, tensor] : whole.inputs[0]) {
    const double scale = name == "weight" ? 1 / std::sqrt(static_cast<double>(tensor.shape()[2])) : 1;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double value = elementAt(tensor.type(), tensor.data(), i) / scale;
      setElement(tensor.type(), tensor.data(), i, value < -1.2 ? -1.0f : value > 1.2 ? 1.0f : 0.0f);
    }
  }
}

TEST_CASE("where bf16 is exact, linear layers of any number of ranks have the bits of one rank") {
  struct Ranks {
    int tp;
    const char* tokens;
    std::vector<int64_t> counts;
  };
  const Ranks kRanks[] = {{2, "own", {77, 43}},
                          {2, "own", {120, 0}},
                          {2, "same", {120, 120}},
                          {4, "own", {1, 2, 17, 100}},
                          {4, "own", {30, 30, 30, 30}},
                          {3, "own", {0, 120, 0}},
                          {4, "same", {120, 120, 120, 120}}};
  for (const bool column : {true, false})
    for (const bool bias : {true, false})
      for (const char* keep : {"all", "regather"}) {
        const Linear alone{
            .column = column, .bias = bias, .in = 48, .out = 24, .maxTokens = 120, .keep = keep};
        const Program one = compileLinear(alone);
        LayerData before = makeGraphData(one, {.tokens = {.counts = {120}}, .seed = 12});
        makeExact(before);
        onEveryIsa([&] {
          const LayerData expected = runOf(one, kSerial, before);
          for (const auto& [name, numbers] : formulasOf(alone, before, {})) {
            INFO(name);
            CHECK(errorOf(numbersOf(expected.outputs[0].at(name)), numbers) == 0);
          }
          for (const Ranks& ranks : kRanks) {
            Linear linear = alone;
            linear.tp = ranks.tp, linear.tokens = ranks.tokens;
            INFO(linear);
            const Program program = compileLinear(linear);
            const LayerData data =
                runOf(program, {.threads = 2, .pin = false}, splitLayer(program, before, ranks.counts));
            const LayerData whole = joinRanks(program, data);
            for (const auto& [name, tensor] : expected.outputs[0]) {
              INFO(name);
              CHECK(sameBits(whole.outputs[0].at(name), tensor));
            }
          }
        });
      }
}

TEST_CASE("rows that a rank binds must be as many as the routing gives it, at all ranks alike") {
  const Program program = compileLinear({.column = false, .tp = 2, .in = 32});
  const LayerData before = makeGraphData(program, {.tokens = {.counts = {9, 14}}});
  std::vector<LayerData> data;
  data.push_back(runOf(program, kSerial, before));
  tools::Tensor small(DType::kBF16, {22, 16});
  tools::Tensor y0(DType::kBF16, {9, 24}), y1(DType::kBF16, {14, 24});
  const auto results = runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    tools::Tensor x(DType::kBF16, {23, 16});
    std::memcpy(x.data(), before.inputs[rank].at("x").data(), x.bytes());
    tools::Tensor weight(DType::kBF16, {1, 24, 16});
    std::memcpy(weight.data(), before.inputs[rank].at("weight").data(), weight.bytes());
    tools::Tensor& y = rank == 0 ? y0 : y1;
    for (const Status& bound : {context.bind("x", viewTensor(rank == 1 ? small : x)),
                                context.bind("weight", viewTensor(weight)), context.bind("y", viewTensor(y))})
      if (!bound) return bound;
    const Status refused = context.run("forward");
    if (refused) return Error{"the step was not refused"};
    if (refused.error().message != "rank 1: tensor 'x' has 22 rows, but this routing gives the rank 23")
      return refused;
    if (Status bound = context.bind("x", viewTensor(x)); !bound) return bound;
    return context.run("forward");
  });
  for (const Status& result : results) {
    INFO((result ? "" : result.error().message));
    CHECK(result.ok());
  }
  CHECK(sameBits(y0, data[0].outputs[0].at("y")));
  CHECK(sameBits(y1, data[0].outputs[1].at("y")));
}

// One rank's step of a forward whose y is placed by `memory`, run or submitted.
Status forwardWith(Context& context, LayerData& data, int rank, const RowMemory& memory, bool submits) {
  for (auto& [name, tensor] : data.inputs[rank])
    if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
  if (Status bound = context.bindRows("y", memory); !bound) return bound;
  if (!submits) return context.run("forward");
  auto step = context.submit("forward");
  return step ? step->wait() : Status(step.error());
}

TEST_CASE("a rank without memory for rows refuses the step at all ranks, and the next step is right") {
  const Linear linear{.tp = 2};
  const Program program = compileLinear(linear);
  LayerData data = makeGraphData(program, {.tokens = {.counts = {9, 14}}, .seed = 3});
  const LayerData expected = runOf(program, kSerial, data);
  for (const bool submits : {false, true}) {
    const auto body = [&](int rank, Context& context) -> Status {
      tools::Tensor& y = data.outputs[rank].at("y");
      const RowMemory good = [&](std::span<const int32_t> firstRows) -> Expected<void*> {
        if (firstRows.size() != 2 || firstRows.back() != 23) return Error{"other rows than 9 + 14"};
        return static_cast<void*>(y.data());
      };
      const std::vector<std::pair<RowMemory, std::string>> refusals = {
          {[](auto) { return nullptr; },
           "tensor 'y' got no memory for 23 rows, expected memory of 552 bytes"},
          {[&](auto) { return static_cast<void*>(y.data() + 1); }, "got an address that is not aligned"},
          {[](auto) { return Error{"at most 22 rows"}; }, "rank 1: at most 22 rows"}};
      for (const auto& [memory, message] : refusals) {
        Status refused = forwardWith(context, data, rank, rank == 1 ? memory : good, submits);
        if (refused || refused.error().message.find("rank 1: ") != 0 ||
            refused.error().message.find(message) == std::string::npos)
          return Error{"not refused: " + (refused ? message : refused.error().message)};
        if (Status next = forwardWith(context, data, rank, good, submits); !next) return next;
        const tools::Tensor& wanted = expected.outputs[rank].at("y");
        if (std::memcmp(y.data(), wanted.data(), y.bytes()) != 0) return Error{"another y after a refusal"};
        std::memset(y.data(), 0, y.bytes());
      }
      return {};
    };
    for (const Status& result : runRanks(program, kSerial, body)) {
      INFO((result ? "" : result.error().message));
      CHECK(result.ok());
    }
  }
}

class Watcher : public StepWatcher {
 public:
  void begun() override { begun_ = true; }
  Status ended(const Status& ran, const OutputReader& output) override {
    ended_ = true;
    if (!ran) return ran;
    if (auto unknown = output("z"); unknown || !begun_) return Error{"z was read"};
    auto y = output("y");
    if (!y) return y.error();
    found.assign(static_cast<std::byte*>(y->data), static_cast<std::byte*>(y->data) + y->bytes());
    return {};
  }

  std::vector<std::byte> found;
  bool begun_ = false, ended_ = false;
};

TEST_CASE("a watcher reads what the context owns when a submitted step has ended") {
  const Program program = compileLinear({.tp = 2});
  LayerData data = makeGraphData(program, {.tokens = {.counts = {9, 14}}, .seed = 3});
  const LayerData expected = runOf(program, kSerial, data);
  const auto body = [&](int rank, Context& context) -> Status {
    for (auto& [name, tensor] : data.inputs[rank])
      if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
    const auto watcher = std::make_shared<Watcher>();
    auto step = context.submit("forward", {}, watcher);
    if (!step) return step.error();
    if (Status ended = step->wait(); !ended) return ended;
    const tools::Tensor& y = expected.outputs[rank].at("y");
    if (watcher->found != std::vector<std::byte>(y.data(), y.data() + y.bytes())) return Error{"another y"};
    // a refused step does not begin, and its watcher has the last word
    const auto refusing = std::make_shared<Watcher>();
    if (Status bound = context.bindRows("y", [](auto) { return Error{"no rows"}; }); !bound) return bound;
    auto refused = context.submit("forward", {}, refusing);
    if (!refused) return refused.error();
    if (refused->wait() || refusing->begun_ || !refusing->ended_) return Error{"it was not refused"};
    return {};
  };
  for (const Status& result : runRanks(program, kSerial, body)) {
    INFO((result ? "" : result.error().message));
    CHECK(result.ok());
  }
}

}  // namespace
}  // namespace sluice

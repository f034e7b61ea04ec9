// `sluice bench --device` without a GPU: the hardware model runs Sluice, and the host multiplies for peers.
#include "tools/bench/bench_gpu.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <list>
#include <nlohmann/json.hpp>

#include "runtime/base/dtype.h"
#include "runtime/gpu/edited_backend.h"
#include "tests/runtime/gpu/model_group.h"
#include "tools/bench/bench_layer.h"

namespace sluice::tools {
namespace {

// What a peer does wrong.
enum class Flaw : uint8_t { kNone, kNoFloats, kSkipsLast, kSwapsLeft, kSwapsTransposed };

class HostPeer final : public ProductPeer {
 public:
  explicit HostPeer(Flaw flaw) : flaw_(flaw) {}

  Expected<size_t> add(const GroupedProduct& product) override {
    products_.push_back(product);
    return products_.size() - 1;
  }

  Expected<StepSeconds> run(std::span<const size_t> numbers) override {
    for (const size_t number : numbers) {
      const GroupedProduct& product = products_[number];
      if (product.isResultFloat && flaw_ == Flaw::kNoFloats) return Error{"no sums of fp32"};
      for (size_t i = 0; i < product.experts.size() - (flaw_ == Flaw::kSkipsLast ? 1 : 0); ++i)
        multiply(product, product.experts[i]);
    }
    return StepSeconds{.step = 1e-3 * static_cast<double>(numbers.size()), .launch = 5e-4};
  }

 private:
  void multiply(const GroupedProduct& product, const OneProduct& one) const {
    const bool isLeftTransposed =
        flaw_ == Flaw::kSwapsLeft || (flaw_ == Flaw::kSwapsTransposed && product.isLeftTransposed)
            ? !product.isLeftTransposed
            : product.isLeftTransposed;
    const auto value = [](const std::byte* data, int64_t i) {
      return toFloat(reinterpret_cast<const BFloat16*>(data)[i]);
    };
    for (int64_t row = 0; row < one.rows; ++row)
      for (int64_t column = 0; column < one.columns; ++column) {
        float sum = 0;
        for (int64_t k = 0; k < one.sum; ++k)
          sum +=
              value(one.left, isLeftTransposed ? k * one.rows + row : row * one.sum + k) *
              value(one.right, product.isRightTransposed ? column * one.sum + k : k * one.columns + column);
        setElement(product.isResultFloat ? DType::kF32 : DType::kBF16, one.result, row * one.columns + column,
                   sum);
      }
  }

  const Flaw flaw_;
  std::vector<GroupedProduct> products_;
};

PeersOf peersWith(std::vector<Flaw> flaws) {
  return [flaws](GpuBackend&) -> Expected<std::vector<NamedPeer>> {
    if (flaws.empty()) return Error{"there is none"};
    std::vector<NamedPeer> peers;
    for (const Flaw flaw : flaws)
      peers.push_back({"peer " + std::to_string(peers.size()), std::make_unique<HostPeer>(flaw)});
    return peers;
  };
}

GpuPrograms programsOf(const GpuCase& c) {
  BenchOptions options;
  options.target = "h200";
  options.targetFolders = {"targets"};
  auto programs = compileForGpu(c, options);
  if (!programs) throw std::runtime_error(programs.error().message);
  return std::move(*programs);
}

struct OnModel {
  ModelGroup group{1, {.blocks = 2, .hasOwnMemory = true}};

  GpuSamples measure(const char* name, const GpuPlan& plan, std::vector<Flaw> flaws) {
    const GpuCase c = *gpuCase(name);
    auto samples = measureOnGpu(c, programsOf(c), plan, group.backends(), peersWith(std::move(flaws)));
    if (!samples) throw std::runtime_error(samples.error().message);
    return std::move(*samples);
  }
};

TEST_CASE("products and peers take turns, and a peer that multiplies alike agrees") {
  const GpuSamples samples = OnModel().measure("tiny", {.repeat = 2}, {Flaw::kNone, Flaw::kNoFloats});
  CHECK(samples.rows.rows == rowsCase("tiny")->rows);
  CHECK(!hasErrors(samples));
  REQUIRE(samples.passes.size() == 2);
  for (const GpuPass& pass : samples.passes) {
    REQUIRE(pass.lines.size() == 3);
    for (const GpuLine& line : pass.lines) {
      INFO(passName(pass.pass) << ", " << line.what << line.error);
      CHECK(line.all.size() == 2);
      CHECK(line.difference.has_value() == (line.what != "products"));
      if (line.difference) CHECK(*line.difference < 0.01);
    }
    const StepSeconds& ours = pass.lines[0].all[0];
    CHECK(ours.bind > 0);
    CHECK(ours.tables > 0);
    CHECK(ours.step > ours.bind + ours.tables);
    // two products forward, four backward
    CHECK(pass.lines[1].all[0].step == Approx(pass.pass == Pass::kForward ? 2e-3 : 4e-3));
  }
  CHECK(samples.passes[1].lines[1].note.empty());
  CHECK(samples.passes[0].lines[2].note.empty());
  CHECK(samples.passes[1].lines[2].note == "weight gradients in bf16");
}

TEST_CASE("a whole layer is measured beside the products of its routed rows") {
  const GpuSamples samples = OnModel().measure("tiny-layer", {.repeat = 1}, {Flaw::kNone});
  const LayerCase layer = tinyLayer(1);
  CHECK(samples.rows.allRows() == layer.tokens * layer.topK);
  CHECK(samples.rows.experts() == layer.experts);
  CHECK(!hasErrors(samples));
  for (const GpuPass& pass : samples.passes) {
    REQUIRE(pass.lines.size() == 3);
    CHECK(pass.lines[0].what == "whole layer");
    CHECK(pass.lines[1].what == "products");
    REQUIRE(pass.lines[2].difference);
    CHECK(*pass.lines[2].difference < 0.01);
  }
}

TEST_CASE("a peer that computes something else is an error, and is not measured") {
  for (const Flaw flaw : {Flaw::kSkipsLast, Flaw::kSwapsLeft, Flaw::kSwapsTransposed}) {
    // after one that is right, whose results must not count for it
    const GpuSamples samples = OnModel().measure("tiny", {.repeat = 1}, {Flaw::kNone, flaw});
    CHECK(hasErrors(samples));
    for (const GpuPass& pass : samples.passes) {
      CHECK(pass.lines[1].error.empty());
      if (flaw == Flaw::kSwapsTransposed && pass.pass == Pass::kForward) {
        CHECK(pass.lines[2].all.size() == 1);
        continue;
      }
      CHECK(pass.lines[2].error.find("differs from Sluice by ") != std::string::npos);
      CHECK(pass.lines[2].all.empty());
    }
    CHECK(formatText(samples).find("error: differs from Sluice by ") != std::string::npos);
  }
}

TEST_CASE("a step copies the tables of its routing to the GPU, and no tensor") {
  const auto countCopies = [](int repeat) {
    OnModel model;
    const GpuSamples samples = model.measure("tiny", {.repeat = repeat}, {});
    CHECK(samples.withoutPeers == "there is none");
    return model.group.copiesIn.load();
  };
  constexpr int64_t kTables = 2, kPasses = 2;
  CHECK(countCopies(3) - countCopies(1) == 2 * kPasses * kTables);
}

TEST_CASE("one pass is measured where one is requested") {
  const GpuSamples forward = OnModel().measure("tiny", {.repeat = 1, .backward = false}, {Flaw::kNone});
  REQUIRE(forward.passes.size() == 1);
  CHECK(forward.passes[0].pass == Pass::kForward);
  const GpuSamples backward = OnModel().measure("tiny", {.repeat = 1, .forward = false}, {Flaw::kNone});
  REQUIRE(backward.passes.size() == 1);
  CHECK(backward.passes[0].pass == Pass::kBackward);
  CHECK(!hasErrors(backward));
}

TEST_CASE("a difference is relative, and infinite where a number is none") {
  ModelGroup group(1, {});
  LocalRanks alone(1);
  const auto backend = *group.backends()(alone.transport(0));
  const auto tensorOf = [&](DType type, std::vector<float> values) {
    GpuTensor tensor = *makeGpuTensor(*backend, type, {std::ssize(values)});
    for (size_t i = 0; i < values.size(); ++i)
      setElement(type, tensor.memory.data, static_cast<int64_t>(i), values[i]);
    return tensor;
  };
  const GpuTensor theirs = tensorOf(DType::kF32, {3, 4});
  CHECK(*measureDifference(*backend, tensorOf(DType::kBF16, {3, 4}), theirs) == 0);
  CHECK(*measureDifference(*backend, tensorOf(DType::kF32, {3, 4.5}), theirs) == Approx(0.1));
  CHECK(std::isinf(*measureDifference(
      *backend, tensorOf(DType::kF32, {std::numeric_limits<float>::quiet_NaN(), 4}), theirs)));
}

// A step of 10 ms, of which 8 ms on the GPU, for half of the peak in a step.
GpuSamples fixedSamples() {
  GpuLine products{.what = "products"};
  for (const double milliseconds : {12.0, 10.0, 9.0})
    products.all.push_back({milliseconds * 1e-3, 8e-3, 0.5e-3, 1e-3});
  GpuLine peer{.what = "peer", .all = {{20e-3, 16e-3, 0, 0}}, .difference = 0.0012, .note = "in bf16"};
  return {.name = "c",
          .rows = *rowsCase("c"),
          .passes = {{Pass::kForward, {kGpuPeak * 5e-3, 0, 0}, {products, peer}}}};
}

TEST_CASE("figures are those of the median step, and of the launch in it") {
  const GpuSamples samples = fixedSamples();
  const GpuFigures f = computeFigures(samples.passes[0].lines[0], samples.passes[0].work);
  CHECK(f.median == Approx(0.010));
  CHECK(f.least == Approx(0.009));
  CHECK(f.most == Approx(0.012));
  CHECK(f.launch == Approx(0.008));
  CHECK(f.shareOfPeak == Approx(0.5));
  CHECK(f.launchShare == Approx(0.625));
}

TEST_CASE("the report names the GPU, and has a line for each that took turns") {
  const std::string gpu = formatText(GpuFacts{"GPU X", 132, 1.98e9}, {.repeat = 3});
  CHECK(gpu.starts_with("GPU X: 132 multiprocessors of at most 1980 MHz; peak 989 TFLOP/s of bf16"));
  CHECK(gpu.find("medians of 3 repetitions") != std::string::npos);
  const std::string text = formatText(fixedSamples());
  INFO(text);
  CHECK(text.starts_with("c: H 1024, I 512, 8 experts, 1024 rows, 128 to 128 per expert\n"));
  const auto lineOf = [&](const std::string& begin) {
    const size_t at = text.find(begin);
    if (at == std::string::npos) return std::string();
    std::string words;
    for (const char c : text.substr(at, text.find('\n', at) - at))
      if (c != ' ' || (!words.empty() && words.back() != ' ')) words += c;
    return words;
  };
  CHECK(lineOf("  forward  products") ==
        "forward products 10.000 9.000 12.000 8.000 0.500 1.000 494.5 50.0% 62.5%");
  CHECK(lineOf("  forward  peer  ") == "forward peer 20.000 20.000 20.000 16.000 - - 247.2 25.0% 31.2%");
  CHECK(text.find("peer: results differ by 1.2e-03; in bf16\n") != std::string::npos);
}

TEST_CASE("the JSON has every repetition, and the reason of a case that failed") {
  const auto json = nlohmann::json::parse(
      formatJson(GpuFacts{"GPU X", 132, 1.98e9}, {{"c", fixedSamples()}, {"d", Error{"it is wrong"}}}));
  CHECK(json["gpu"] == "GPU X");
  CHECK(json["peak_flops"] == 989e12);
  const auto& line = json["cases"][0]["passes"][0]["lines"][0];
  CHECK(line["what"] == "products");
  CHECK(line["step_seconds"].size() == 3);
  CHECK(line["tables_seconds"][0] == 1e-3);
  CHECK(json["cases"][0]["passes"][0]["lines"][1]["difference"] == 0.0012);
  CHECK(json["cases"][1]["error"] == "it is wrong");
}

TEST_CASE("a case that fails does not keep the next ones from being measured") {
  std::list<ModelGroup> groups;
  int made = 0;
  const BenchGpu gpu{{"the model", 2, 1e9},
                     [&]() -> Expected<BackendMaker> {
                       groups.emplace_back(1, ModelOptions{.blocks = 2, .hasOwnMemory = true});
                       BackendMaker real = groups.back().backends();
                       if (made++ > 0) return real;
                       return editedBackends(std::move(real),
                                             [](StepTables& tables) { tables.records = {}; });
                     },
                     peersWith({})};
  const std::string file = std::string(std::getenv("TEST_TMPDIR")) + "/gpu.json";
  const GpuBench bench{{*gpuCase("tiny"), *gpuCase("tiny")}, {.repeat = 1}, file};
  const Status done = benchOnGpu(gpu, bench, [](const GpuCase& c) { return programsOf(c); });
  REQUIRE(!done);
  CHECK(done.error().message == "1 of 2 cases have errors");
  CHECK(made == 2);
}

}  // namespace
}  // namespace sluice::tools

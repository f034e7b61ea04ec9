// The whole layer against double precision: random shapes and routings on every instruction set.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/abi/kernels.h"
#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

// bf16 inputs and intermediates; see the README's figure.
constexpr double kTolerance = 1.2e-2;

class ForcedIsa {
 public:
  explicit ForcedIsa(ops::Isa isa) { setenv("SLUICE_ISA", std::string(ops::isaName(isa)).c_str(), 1); }
  ~ForcedIsa() { unsetenv("SLUICE_ISA"); }
};

struct RandomCase {
  MoeShape shape;
  tools::InputsSpec spec;
};

// EP 1 to 4, E 1 to 8 EP, K 1 to 8, H and I that are not multiples of 16, T from 0.
RandomCase makeCase(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  RandomCase c;
  MoeShape& s = c.shape;
  s.ranks = pick(1, 4);
  s.experts = pick(1, 8 * s.ranks);
  s.topK = pick(1, std::min(8, s.experts));
  s.hidden = pick(1, 90) | 1;
  s.intermediate = pick(1, 70) | 1;
  s.maxTokens = pick(1, 150);
  s.cores = pick(1, 6);
  s.slotRows = 16 * pick(1, 4);
  s.window = pick(1, 6);
  s.tileN = 16 * pick(1, 3);
  s.tileM = 16 * pick(1, 3);
  using tools::RoutingKind;
  const RoutingKind kinds[] = {RoutingKind::kUniform, RoutingKind::kZipf, RoutingKind::kOneHot,
                               RoutingKind::kHalfEmpty, RoutingKind::kMasked};
  c.spec.routing = {kinds[random() % 5], 1.2};
  c.spec.seed = random();
  for (int rank = 0; rank < s.ranks; ++rank) {
    const int64_t choices[] = {0, 1, pick(0, s.maxTokens), s.maxTokens};
    c.spec.tokens.counts.push_back(choices[random() % 4]);
  }
  // d_expert_weights is one dot product per pair: with only a few pairs the relative error is a matter of
  // luck, because one may cancel to almost nothing
  s.maxTokens = std::max(s.maxTokens, 12);
  auto& counts = c.spec.tokens.counts;
  if (std::accumulate(counts.begin(), counts.end(), int64_t{0}) < 12) counts.back() = 12;
  return c;
}

TEST_CASE("all outputs agree with double precision for random shapes and routings on every instruction set") {
  std::mt19937 random(2026);
  double worst = 0;
  for (int trial = 0; trial < 36; ++trial) {
    RandomCase c = makeCase(random);
    c.shape.inPlace = c.shape.ranks == 1 && trial % 2 == 0;
    auto program = Program::fromTaskProgram(buildMoeProgram(c.shape));
    INFO((program ? "" : program.error().message));
    REQUIRE(program.ok());
    for (const ops::Isa isa : ops::supportedIsas()) {
      const ForcedIsa forced(isa);
      LayerData data = makeLayerData(program->tables(), c.spec);
      const Status ran = runLayer(*program, {.threads = 1 + trial % 3}, data);
      INFO((ran ? "" : ran.error().message));
      REQUIRE(ran.ok());
      const auto errors = errorsOf(data);
      CHECK(errors.size() == 5);
      for (const tools::OutputError& error : errors) {
        INFO("trial " << trial << ", " << ops::isaName(isa) << ", " << error.name << ": " << error.relative);
        CHECK(error.relative <= kTolerance);
        worst = std::max(worst, error.relative);
      }
    }
  }
  WARN("largest relative L2 error: " << worst);
}

TEST_CASE("one token at one rank, none at the others, agrees with double precision") {
  auto program = Program::fromTaskProgram(
      buildMoeProgram({.ranks = 4, .experts = 32, .topK = 8, .hidden = 75, .intermediate = 51}));
  REQUIRE(program.ok());
  for (const ops::Isa isa : ops::supportedIsas()) {
    const ForcedIsa forced(isa);
    LayerData data = makeLayerData(program->tables(), {.tokens = {.counts = {0, 0, 1, 0}}, .seed = 4});
    REQUIRE(runLayer(*program, {.threads = 1}, data).ok());
    for (const tools::OutputError& error : errorsOf(data)) {
      INFO(ops::isaName(isa) << ", " << error.name << ": " << error.relative);
      CHECK(error.relative <= kTolerance);
    }
  }
}

TEST_CASE("a rank that copies no rows gives the bits of one that does") {
  for (const bool fused : {false, true})
    for (const int groupSlots : {0, 2})
      for (const int64_t tokens : {0, 1, 7, 64}) {
        MoeShape shape{.ranks = 1, .experts = 5, .topK = 3, .hidden = 75, .intermediate = 51};
        shape.fused = fused;
        shape.groupSlots = groupSlots;
        auto copying = Program::fromTaskProgram(buildMoeProgram(shape));
        shape.inPlace = true;
        auto inPlace = Program::fromTaskProgram(buildMoeProgram(shape));
        REQUIRE(copying.ok());
        REQUIRE(inPlace.ok());
        for (const ops::Isa isa : ops::supportedIsas()) {
          const ForcedIsa forced(isa);
          const tools::InputsSpec spec{.tokens = {.counts = {tokens}},
                                       .routing = {tools::RoutingKind::kMasked, 1.2},
                                       .seed = static_cast<uint64_t>(tokens)};
          LayerData copied = makeLayerData(copying->tables(), spec);
          LayerData read = makeLayerData(inPlace->tables(), spec);
          REQUIRE(runLayer(*copying, {.threads = 2}, copied).ok());
          REQUIRE(runLayer(*inPlace, {.threads = 2}, read).ok());
          INFO(ops::isaName(isa) << ", " << tokens << " tokens" << (fused ? ", fused" : ""));
          CHECK(hashOutputs(read) == hashOutputs(copied));
        }
      }
}

TEST_CASE("a NaN weight passes through to the tokens that use it, and to no other") {
  MoeShape shape{.ranks = 1, .experts = 2, .topK = 1, .hidden = 20, .intermediate = 12};
  auto program = Program::fromTaskProgram(buildMoeProgram(shape));
  REQUIRE(program.ok());
  LayerData data = makeLayerData(program->tables(), {.tokens = {.counts = {30}}});
  // expert 1: column 3 of down_weight is NaN
  for (int i = 0; i < shape.intermediate; ++i)
    data.inputs[0].at("down_weight").as<BFloat16>()[(shape.intermediate + i) * shape.hidden + 3] = {0x7fc0};
  REQUIRE(runLayer(*program, {}, data, {"forward"}).ok());
  const auto* ids = data.inputs[0].at("expert_ids").as<int32_t>();
  const auto* y = data.outputs[0].at("y").as<BFloat16>();
  for (int t = 0; t < 30; ++t) {
    for (int h = 0; h < shape.hidden; ++h) {
      const float value = toFloat(y[t * shape.hidden + h]);
      CHECK((value != value) == (ids[t] == 1 && h == 3));
    }
  }
}

TEST_CASE("misuse of a context is an error that names what was found and expected") {
  auto program = Program::fromTaskProgram(buildMoeProgram({.ranks = 1, .experts = 4, .topK = 2}));
  REQUIRE(program.ok());
  LocalRanks ranks(1);
  CHECK(Context::create(*program, ranks.transport(0), {.threads = -1}).error().message ==
        "found -1 threads, expected 1 to 4096 (or 0 for this machine's share)");
  LocalRanks two(2);
  CHECK(Context::create(*program, two.transport(0), {}).error().message ==
        "the program was compiled for 1 ranks, but the transport has 2");

  auto context = Context::create(*program, ranks.transport(0), {});
  REQUIRE(context.ok());
  LayerData data = makeLayerData(program->tables(), {.tokens = {.counts = {10}}});
  const auto message = [](const Status& status) { return status ? std::string() : status.error().message; };
  CHECK(message((*context)->run("sideways")) ==
        "the program has no entry 'sideways', expected one of: forward, backward");
  CHECK(message((*context)->run("forward")) ==
        "rank 0: entry 'forward' needs tensor 'x', which is not bound");
  CHECK(message((*context)->bind("z", {DType::kF32, {1}, nullptr})) ==
        "the program has no tensor 'z', expected one of: x, expert_ids, expert_weights, gate_up_weight, "
        "down_weight, y, dy, dx, d_expert_weights, gate_up_weight_grad, down_weight_grad");
  CHECK(message((*context)->bind("x", {DType::kF32, {10, 32}, &data})) ==
        "tensor 'x' has type F32, expected BF16");
  CHECK(message((*context)->bind("x", {DType::kBF16, {10, 31}, &data})) ==
        "tensor 'x' has shape [10, 31], expected [T, 32]");
  CHECK(message((*context)->bind("x", {DType::kBF16, {65, 32}, &data})) ==
        "tensor 'x' has 65 tokens, but the program was compiled for at most 64");
  REQUIRE(bindAll(data, 0, **context).ok());
  CHECK(message((*context)->run("backward")) ==
        "rank 0: entry 'backward' uses what entry 'forward' saves, which has not run");
  CHECK(message((*context)->run("forward")).empty());

  LayerData shorter = makeLayerData(program->tables(), {.tokens = {.counts = {9}}});
  REQUIRE((*context)->bind("dy", viewTensor(shorter.inputs[0].at("dy"))).ok());
  CHECK_THAT(message((*context)->run("backward")), Catch::Matchers::Contains("tokens"));
  // none of these errors makes the context unusable
  REQUIRE(bindAll(data, 0, **context).ok());
  CHECK(message((*context)->run("forward")).empty());
  CHECK(message((*context)->run("backward")).empty());
}

TEST_CASE("a bad expert id at one rank fails the step at all ranks, and the next step runs") {
  auto program = Program::fromTaskProgram(buildMoeProgram({.ranks = 3, .experts = 6, .topK = 2}));
  REQUIRE(program.ok());
  LayerData bad = makeLayerData(program->tables(), {.tokens = {.counts = {10, 20, 30}}});
  LayerData good = makeLayerData(program->tables(), {.tokens = {.counts = {10, 20, 30}}});
  bad.inputs[1].at("expert_ids").as<int32_t>()[7] = 6;
  const auto results = runRanks(*program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(bad, rank, context); !bound) return bound;
    const Status failed = context.run("forward");
    if (failed) return Error{"a bad id was accepted"};
    if (failed.error().message != "rank 1: expert_ids[3,1] is 6, expected -1 (masked) or 0 to 5")
      return failed;
    if (Status bound = bindAll(good, rank, context); !bound) return bound;
    return context.run("forward");
  });
  for (const Status& result : results) {
    INFO((result ? "" : result.error().message));
    CHECK(result.ok());
  }
}

TEST_CASE("ranks that loaded different programs are told so, and nothing else of them") {
  auto one = Program::fromTaskProgram(buildMoeProgram({.ranks = 2, .hidden = 32}));
  auto other = Program::fromTaskProgram(buildMoeProgram({.ranks = 2, .hidden = 32, .window = 5}));
  REQUIRE(one.ok());
  REQUIRE(other.ok());
  LocalRanks local(2);
  LayerData data = makeLayerData(one->tables(), {.tokens = {.counts = {4, 4}}});
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      auto context = Context::create(rank == 0 ? *one : *other, local.transport(rank), {.threads = 1});
      if (!context) {
        messages[rank] = context.error().message;
        return;
      }
      (void)bindAll(data, rank, **context);
      const Status ran = (*context)->run("forward");
      messages[rank] = ran ? "" : ran.error().message;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : messages)
    CHECK_THAT(message, Catch::Matchers::Matches("rank 1 loaded program '.*' with fingerprint [0-9a-f]{16}, "
                                                 "but rank 0 one with fingerprint [0-9a-f]{16}"));
}

}  // namespace
}  // namespace sluice

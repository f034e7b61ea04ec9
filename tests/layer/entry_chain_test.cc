// Entries that use what each other save: forward, then backward, then the weight gradients as a third entry.
// In every order a step has the bits of its chain, or is refused with what is missing.
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <random>

#include "tests/layer/graph_run.h"

namespace sluice {
namespace {

Program chain(int ranks) {
  CompileOptions options;
  options.sets = {{"ep", ranks},  {"experts", 3 * ranks}, {"top_k", 2},
                  {"hidden", 24}, {"intermediate", 17},   {"max_tokens", 32}};
  return compileGraph(std::filesystem::absolute("tests/layer/entry_chain.json"), options);
}

constexpr int kBatches = 2;

// All batches have the same number of tokens: only their content differs.
LayerData dataOf(const Program& program, int batch) {
  const std::vector<int64_t> tokens(static_cast<size_t>(program.ranks()), 11);
  return makeGraphData(program, {.tokens = {.counts = tokens}, .seed = static_cast<uint32_t>(batch + 1)});
}

enum Step : int { kForward0, kForward1, kBackward, kWeightGrads, kSteps };

// What is there: the batch that forward ran last, and whether backward ran since.
struct Chain {
  int batch = -1;
  bool isBackwardThere = false;

  // "" where the step runs.
  std::string next(int step) {
    if (step == kForward0 || step == kForward1) {
      batch = step == kForward0 ? 0 : 1;
      wasBackwardThere = wasBackwardThere || isBackwardThere;
      isBackwardThere = false;
      return "";
    }
    const std::string name = step == kBackward ? "backward" : "weight_grads";
    const std::string uses = "rank 0: entry '" + name + "' uses what entry '";
    if (batch < 0) return uses + "forward' saves, which has not run";
    if (step == kBackward) {
      isBackwardThere = true;
      wasBackwardThere = false;
      return "";
    }
    if (isBackwardThere) return "";
    return uses + "backward' saves, which has not run" +
           (wasBackwardThere ? " since entry 'forward' did" : "");
  }

  bool wasBackwardThere = false;
};

std::vector<std::string> outputsOf(int step) {
  if (step == kBackward) return {"dx", "d_expert_weights"};
  if (step == kWeightGrads) return {"gate_up_weight_grad", "down_weight_grad"};
  return {"y"};
}

uint64_t hashContent(const LayerData& data, int rank, int step) {
  uint64_t hash = 0;
  for (const std::string& name : outputsOf(step))
    hash = sluice::hashContent(bytesOf(data.outputs[rank].at(name)), hash);
  return hash;
}

// Hashes of clean chains: [batch][step]
using Expected3 = std::vector<std::vector<uint64_t>>;

void fillOutputs(LayerData& data, int rank, int step) {
  for (const std::string& name : outputsOf(step)) {
    tools::Tensor& tensor = data.outputs[rank].at(name);
    std::fill_n(tensor.data(), tensor.bytes(), std::byte{0xa5});
  }
}

Status run(Context& context, LayerData& data, int rank, int step, uint32_t set = 0) {
  fillOutputs(data, rank, step);
  if (Status bound = bindAll(data, rank, context); !bound) return bound;
  const char* entry = step == kBackward ? "backward" : step == kWeightGrads ? "weight_grads" : "forward";
  return context.run(entry, {set});
}

// Runs steps at one rank, and says where it went otherwise than expected.
std::string walk(Context& context, std::vector<LayerData>& batches, const Expected3& expected, int rank,
                 const std::vector<int>& steps) {
  Chain chain;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string refused = chain.next(steps[i]);
    const int batch = std::max(chain.batch, 0);
    const Status ran = run(context, batches[batch], rank, steps[i]);
    const std::string found = ran ? "" : ran.error().message;
    if (found != refused)
      return "step " + std::to_string(i) + ": '" + found + "', expected '" + refused + "'";
    if (ran && hashContent(batches[batch], rank, steps[i]) != expected[batch][steps[i]])
      return "step " + std::to_string(i) + " has other bits";
  }
  return "";
}

// By rank, of runs in contexts of their own.
std::vector<Expected3> cleanHashes(const Program& program) {
  std::vector<Expected3> all(program.ranks(),
                             Expected3(kBatches, std::vector<uint64_t>(static_cast<size_t>(kSteps))));
  for (int batch = 0; batch < kBatches; ++batch) {
    LayerData data = dataOf(program, batch);
    runGraph(program, ExecutorKind::kParallel, data);
    for (const tools::OutputError& error : errorsOfGraph(program, data)) {
      INFO(error.name);
      CHECK(error.relative <= 1.2e-2);
    }
    for (int rank = 0; rank < program.ranks(); ++rank)
      for (int step = 0; step < kSteps; ++step) all[rank][batch][step] = hashContent(data, rank, step);
  }
  return all;
}

TEST_CASE("entries in every order of five steps have the bits of their chain, or name what is missing") {
  const Program program = chain(1);
  const Expected3 expected = cleanHashes(program)[0];
  CHECK(expected[0] != expected[1]);
  std::vector<LayerData> batches;
  for (int batch = 0; batch < kBatches; ++batch) batches.push_back(dataOf(program, batch));
  constexpr int kLength = 5;
  for (int code = 0; code < kSteps * kSteps * kSteps * kSteps * kSteps; ++code) {
    std::vector<int> steps;
    for (int i = 0, rest = code; i < kLength; ++i, rest /= kSteps) steps.push_back(rest % kSteps);
    LocalRanks ranks(1);
    auto context = Context::create(program, ranks.transport(0), {.executor = ExecutorKind::kSerial});
    REQUIRE(context.ok());
    INFO("steps " << steps[0] << steps[1] << steps[2] << steps[3] << steps[4]);
    REQUIRE(walk(**context, batches, expected, 0, steps) == "");
  }
}

TEST_CASE("two ranks in long random orders have the bits of their chains") {
  const Program program = chain(2);
  const auto expected = cleanHashes(program);
  std::mt19937 random(5);
  std::vector<int> steps;
  for (int i = 0; i < 400; ++i) steps.push_back(static_cast<int>(random() % kSteps));
  std::vector<LayerData> batches;
  for (int batch = 0; batch < kBatches; ++batch) batches.push_back(dataOf(program, batch));
  std::vector<std::string> found(2);
  const auto results = runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    found[rank] = walk(context, batches, expected[rank], rank, steps);
    return {};
  });
  for (const Status& result : results) CHECK(result.ok());
  CHECK(found == std::vector<std::string>(2));
}

TEST_CASE("what backward saved in one set is not stale because forward ran on another") {
  const Program program = chain(1);
  const Expected3 expected = cleanHashes(program)[0];
  LocalRanks ranks(1);
  auto context = Context::create(program, ranks.transport(0), {.threads = 1});
  REQUIRE(context.ok());
  std::vector<LayerData> batches;
  for (int batch = 0; batch < kBatches; ++batch) batches.push_back(dataOf(program, batch));
  CHECK(run(**context, batches[0], 0, kForward0, 0).ok());
  CHECK(run(**context, batches[0], 0, kBackward, 0).ok());
  CHECK(run(**context, batches[1], 0, kForward1, 3).ok());
  CHECK(run(**context, batches[1], 0, kWeightGrads, 3).error().message ==
        "rank 0: entry 'weight_grads' uses what entry 'backward' saves in saved set 3, which has not run on "
        "that set");
  CHECK(run(**context, batches[0], 0, kWeightGrads, 0).ok());
  CHECK(hashContent(batches[0], 0, kWeightGrads) == expected[0][kWeightGrads]);
  CHECK(run(**context, batches[1], 0, kBackward, 3).ok());
  CHECK(run(**context, batches[1], 0, kWeightGrads, 3).ok());
  CHECK(hashContent(batches[1], 0, kWeightGrads) == expected[1][kWeightGrads]);
}

TEST_CASE("weight gradients run beside steps on other sets, in a context that shares the saved sets") {
  const Program program = chain(2);
  const auto expected = cleanHashes(program);
  std::vector<LayerData> batches;
  for (int batch = 0; batch < kBatches; ++batch) batches.push_back(dataOf(program, batch));
  std::vector<Transport*> transports(2);
  std::vector<std::string> found(2);
  const auto body = [&](int rank, Context& context) -> Status {
    auto beside = Context::create(program, *transports[rank], {.threads = 1, .savedOf = &context});
    if (!beside) return beside.error();
    std::optional<PendingStep> pending;
    for (uint32_t round = 0; round < 100; ++round) {
      const uint32_t set = round % kBatches;
      LayerData& data = batches[set];
      const int forward = set == 0 ? kForward0 : kForward1;
      for (const int step : {forward, int{kBackward}}) {
        if (Status ran = run(context, data, rank, step, set); !ran) return ran;
        if (hashContent(data, rank, step) != expected[rank][set][step]) found[rank] = "other bits beside";
      }
      const uint32_t other = 1 - set;
      if (pending) {
        if (Status ran = pending->wait(); !ran) return ran;
        if (hashContent(batches[other], rank, kWeightGrads) != expected[rank][other][kWeightGrads])
          found[rank] = "other weight gradients";
      }
      fillOutputs(data, rank, kWeightGrads);
      if (Status bound = bindAll(data, rank, **beside); !bound) return bound;
      auto submitted = (*beside)->submit("weight_grads", {set});
      if (!submitted) return submitted.error();
      pending = std::move(*submitted);
    }
    return pending->wait();
  };
  const auto keepTransport = [&](int rank, Transport& real) -> Transport& {
    return *(transports[rank] = &real);
  };
  for (const Status& result : runRanks(program, {.threads = 1}, body, keepTransport))
    CHECK(messageOf(result) == "");
  CHECK(found == std::vector<std::string>(2));
}

TEST_CASE("contexts of two programs share no saved sets") {
  LocalRanks ranks(1);
  const auto context = Context::create(chain(1), ranks.transport(0), {.threads = 1});
  REQUIRE(context.ok());
  CompileOptions options;
  options.sets = {{"max_tokens", 8}};
  const Program other = compileGraph(std::filesystem::absolute("tests/layer/entry_chain.json"), options);
  const auto refused = Context::create(other, ranks.transport(0), {.threads = 1, .savedOf = context->get()});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "saved sets can only be shared by contexts of one program and transport");
}

}  // namespace
}  // namespace sluice

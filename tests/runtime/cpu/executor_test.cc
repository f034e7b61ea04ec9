// Executors on real programs: the same bits for any executor and number of threads, over many steps.
#include <catch2/catch.hpp>
#include <chrono>
#include <regex>
#include <thread>

#include "runtime/cpu/cpu_device.h"
#include "runtime/cpu/cpu_executor.h"
#include "runtime/cpu/cpu_step.h"
#include "runtime/exec/work_memory.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/separate_cores.h"
#include "tests/testing/small_layer.h"

namespace sluice {
namespace {

using tools::InputsSpec;
using tools::RoutingKind;

uint64_t runHash(const Program& program, const InputsSpec& spec, const ContextOptions& options,
                 const WrapTransport& wrap = {}) {
  LayerData data = makeLayerData(program.tables(), spec);
  const Status ran = runLayer(program, options, data, {"forward", "backward"}, wrap);
  INFO((ran ? "" : ran.error().message));
  REQUIRE(ran.ok());
  return hashOutputs(data);
}

TEST_CASE("serial and parallel executors give the same bits for any number of threads") {
  for (const int ranks : {1, 2, 3}) {
    const Program program = programOf(buildMoeProgram(smallShape(ranks)));
    for (const RoutingKind kind : {RoutingKind::kZipf, RoutingKind::kOneHot, RoutingKind::kHalfEmpty}) {
      const InputsSpec spec{.tokens = {.ragged = true, .most = 90}, .routing = {kind, 1.3}, .seed = 5};
      const uint64_t oracle = runHash(program, spec, kSerial);
      for (const int threads : {1, 2, 3, 5, 9}) CHECK(runHash(program, spec, {.threads = threads}) == oracle);
    }
  }
}

TEST_CASE("programs with separate cube and vector cores give the bits of unified ones") {
  for (const int ranks : {1, 2, 3}) {
    const TaskProgram unified = buildMoeProgram(smallShape(ranks));
    const InputsSpec spec{
        .tokens = {.ragged = true, .most = 90}, .routing = {RoutingKind::kZipf, 1.3}, .seed = 7};
    const uint64_t oracle = runHash(programOf(unified), spec, kSerial);
    for (const int communication : {0, 1, 2}) {
      const Program separate = programOf(separateCores(unified, 2, 4, communication));
      CHECK(runHash(separate, spec, kSerial) == oracle);
      for (const int threads : {1, 2, 3, 4, 6, 9})
        CHECK(runHash(separate, spec, {.threads = threads}) == oracle);
    }
  }
}

TEST_CASE("a worker is of use for every core of any kind, and for no more") {
  const auto workersOf = [](const TaskProgram& program, int threads) {
    const auto plan = std::make_shared<const Plan>(Plan::make(*verify(program)));
    const auto workers = WorkerPool::of(threads, {}, 0);
    return ParallelExecutor(plan, **ops::selectKernels(), {}, *workers).workers();
  };
  const TaskProgram unified = buildMoeProgram({.cores = 5});
  CHECK(workersOf(unified, 9) == 5);
  CHECK(workersOf(separateCores(unified, 2, 4, 1), 9) == 6);
  CHECK(workersOf(separateCores(unified, 2, 4, 1), 3) == 3);
}

TEST_CASE("scratch memory that no machine has is an error") {
  LocalRanks ranks(1);
  const auto device = *CpuDevice::start(ranks.transport(0), {.threads = 1});
  const auto memory = WorkMemory().grow({.scratchBytes = size_t{1} << 60}, *device);
  REQUIRE_FALSE(memory.ok());
  CHECK(memory.error().message ==
        "scratch memory of workers: cannot reserve 1152921504606846976 bytes of address space: "
        "Cannot allocate memory");
}

TEST_CASE("kernels that do not multiply the types of a program are refused with both named") {
  const TaskProgram program = buildMoeProgram({});
  ops::KernelSet kernels = **ops::selectKernels();
  const auto refusal = [&] { return checkProducts(program, kernels).error().message; };
  const std::string isa(ops::isaName(kernels.isa));
  const ops::GmmKernels others[] = {{.types = {DType::kBF16, DType::kF16, DType::kBF16}},
                                    {.types = {DType::kF16, DType::kBF16, DType::kBF16}}};
  CHECK(checkProducts(program, kernels).ok());
  kernels.weightGradTypes = kernels.weightGradTypes.subspan(1, 1);
  CHECK(refusal() == "family 'down_weight_grad' multiplies BF16 by BF16 into F32, but the " + isa +
                         " kernels multiply BF16 by BF16 into BF16");
  kernels.gmms = others;
  CHECK(refusal() == "family 'up_proj' multiplies BF16 by BF16 into BF16, but the " + isa +
                         " kernels multiply BF16 by F16 into BF16, F16 by BF16 into BF16");
}

TEST_CASE("more slots are live than many windows hold") {
  const Program program = programOf(buildMoeProgram({.ranks = 2,
                                                     .experts = 2,
                                                     .topK = 1,
                                                     .hidden = 17,
                                                     .intermediate = 9,
                                                     .maxTokens = 700,
                                                     .cores = 4,
                                                     .slotRows = 16,
                                                     .window = 2}));
  const InputsSpec spec{.tokens = {.counts = {700, 650}}, .routing = {RoutingKind::kOneHot, 1.0}, .seed = 3};
  CHECK(runHash(program, spec, {.threads = 3}) == runHash(program, spec, kSerial));
}

TEST_CASE("ranks without tokens take part") {
  const Program program = programOf(buildMoeProgram({.ranks = 4, .experts = 8, .topK = 3, .cores = 3}));
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 64, 0, 1}}) {
    const InputsSpec spec{.tokens = {.counts = counts}, .routing = {}, .seed = 9};
    CHECK(runHash(program, spec, {.threads = 2}) == runHash(program, spec, kSerial));
  }
}

TEST_CASE("a receiver whose memory is out of reach gets the same bits through put") {
  const Program program =
      programOf(buildMoeProgram({.ranks = 3, .experts = 6, .topK = 2, .hidden = 33, .intermediate = 20}));
  const InputsSpec spec{
      .tokens = {.ragged = true, .most = 60}, .routing = {RoutingKind::kZipf, 1.1}, .seed = 2};
  std::vector<std::unique_ptr<FaultyTransport>> wrapped(3);
  const auto hide = [&](int rank, Transport& real) -> Transport& {
    wrapped[rank] =
        std::make_unique<FaultyTransport>(real, [](int, SymmetricHandle, size_t, uint64_t) { return true; });
    wrapped[rank]->hideMemory();
    return *wrapped[rank];
  };
  CHECK(runHash(program, spec, {.threads = 2}, hide) == runHash(program, spec, kSerial));
}

TEST_CASE("one context runs step after step with any token count and routing") {
  const Program program =
      programOf(buildMoeProgram({.ranks = 2, .experts = 6, .topK = 2, .maxTokens = 80, .cores = 4}));
  std::vector<LayerData> steps;
  std::vector<uint64_t> expected;
  for (int step = 0; step < 12; ++step) {
    const InputsSpec spec{.tokens = {.counts = {step * 7 % 80, (step * 37 + 11) % 80}},
                          .routing = {step % 3 == 0 ? RoutingKind::kZipf : RoutingKind::kMasked, 1.5},
                          .seed = static_cast<uint64_t>(step)};
    expected.push_back(runHash(program, spec, kSerial));
    steps.push_back(makeLayerData(program.tables(), spec));
  }
  const auto results = runRanks(program, {.threads = 2}, [&](int rank, Context& context) -> Status {
    for (LayerData& step : steps) {
      if (Status bound = bindAll(step, rank, context); !bound) return bound;
      for (const char* entry : {"forward", "backward"})
        if (Status ran = context.run(entry); !ran) return ran;
    }
    return {};
  });
  for (const Status& result : results) REQUIRE(result.ok());
  for (size_t step = 0; step < steps.size(); ++step) CHECK(hashOutputs(steps[step]) == expected[step]);
}

// Runs forward with a transport that loses the signals `keep` refuses at `faulty`.
std::vector<Status> runLosing(const Program& program, LayerData& data, const ContextOptions& options,
                              int faulty, FaultyTransport::Filter keep) {
  std::vector<std::unique_ptr<FaultyTransport>> wrapped(program.ranks());
  const auto wrap = [&](int rank, Transport& real) -> Transport& {
    if (rank != faulty) return real;
    wrapped[rank] = std::make_unique<FaultyTransport>(real, keep);
    return *wrapped[rank];
  };
  return runRanks(
      program, options,
      [&](int rank, Context& context) -> Status {
        if (Status bound = bindAll(data, rank, context); !bound) return bound;
        return context.run("forward");
      },
      wrap);
}

TEST_CASE("a lost message ends the step on all ranks with a report that names who owes it") {
  const Program program =
      programOf(buildMoeProgram({.ranks = 3, .experts = 3, .topK = 3, .cores = 2, .slotRows = 32}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {5, 6, 7}}});
  const std::regex direct(
      "rank 2, core [01]: waited 0.3 s for event rows_arrived\\[0\\] \\(12 of 18 rows\\) before task "
      "up_proj\\[0,[0-9]\\]; missing: 6 rows from rank 1");
  // On a busy machine the limit of a rank that waits for rank 2 may come first.
  const std::string behind =
      "rank [01], core [01]: waited 0.3 s for event returned\\[[0-9]\\] .* missing: [0-9]+ rows from rank 2";
  for (const ExecutorKind executor : {ExecutorKind::kParallel, ExecutorKind::kSerial}) {
    bool isDirect = false;
    for (int attempt = 0; attempt < 10 && !isDirect; ++attempt) {
      // rank 1 never tells rank 2 that its rows have arrived
      const auto results =
          runLosing(program, data, {.threads = 1, .executor = executor, .timeoutSeconds = 0.3}, 1,
                    [](int rank, SymmetricHandle, size_t, uint64_t) { return rank != 2; });
      for (const Status& result : results) {
        REQUIRE_FALSE(result.ok());
        isDirect = std::regex_match(result.error().message, direct);
        if (!isDirect) CHECK_THAT(result.error().message, Catch::Matchers::Matches(behind));
      }
    }
    CHECK(isDirect);
  }
}

TEST_CASE("a report names the core by its kind and number") {
  const Program program = programOf(separateCores(buildMoeProgram({.experts = 1, .topK = 1}), 2, 4, 3));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {10}}});
  const auto reportLosing = [&](int lost) {
    int signals = 0;
    const auto results = runLosing(program, data, {.threads = 1, .timeoutSeconds = 0.3}, 0,
                                   [&](int, SymmetricHandle, size_t, uint64_t) { return ++signals != lost; });
    return results[0] ? "no error" : results[0].error().message;
  };
  CHECK_THAT(reportLosing(2),
             Catch::Matchers::StartsWith("rank 0, cube 0: waited 0.3 s for event rows_arrived[0]"));
  CHECK_THAT(reportLosing(3),
             Catch::Matchers::StartsWith("rank 0, vector 3: waited 0.3 s for event up_proj_done[0]"));
}

TEST_CASE("a lost local signal is reported with the tasks that did not signal") {
  const Program program = programOf(buildMoeProgram({.ranks = 1, .experts = 1, .topK = 1, .cores = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {10}}});
  int signals = 0;
  const auto results = runLosing(program, data, {.threads = 1, .timeoutSeconds = 0.3}, 0,
                                 [&](int, SymmetricHandle, size_t, uint64_t) { return ++signals != 3; });
  REQUIRE_FALSE(results[0].ok());
  CHECK_THAT(results[0].error().message,
             Catch::Matchers::Contains("for event up_proj_done[0] (2 of 3 tasks) before task swiglu[0,0]"));
}

TEST_CASE("a rank that comes late is waited for") {
  const Program program = programOf(buildMoeProgram({.ranks = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20, 30}}});
  const auto results =
      runRanks(program, {.threads = 1, .timeoutSeconds = 20}, [&](int rank, Context& context) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        Status bound = bindAll(data, rank, context);
        return bound ? context.run("forward") : bound;
      });
  for (const Status& result : results) CHECK(result.ok());
}

TEST_CASE("a rank that does not come is named") {
  const Program program = programOf(buildMoeProgram({.ranks = 2}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20, 30}}});
  const auto results =
      runRanks(program, {.threads = 1, .timeoutSeconds = 0.2}, [&](int rank, Context& context) -> Status {
        Status bound = bindAll(data, rank, context);
        return bound && rank == 0 ? context.run("forward") : bound;
      });
  REQUIRE_FALSE(results[0].ok());
  CHECK(results[0].error().message ==
        "rank 0: waited 0.2 s for the counts of rank 1 before entry 'forward' (step 1)");
}

}  // namespace
}  // namespace sluice

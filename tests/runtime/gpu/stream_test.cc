// Streams of the caller, on the hardware model: what a backend is told of them, and when.
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/gpu/forwarding_backend.h"
#include "runtime/gpu/gpu_device.h"
#include "tests/runtime/gpu/model_group.h"
#include "tests/testing/small_layer.h"

namespace sluice {
namespace {

using Words = std::vector<std::string>;

void* const kStream = reinterpret_cast<void*>(uintptr_t{7});

// One rank on the model with its data bound, except expert ids.
struct OneRank {
  explicit OneRank(ModelOptions options = {}) : group(1, withLog(std::move(options))), transports(1) {
    backend = *group.backends()(transports.transport(0));
    ContextOptions of{.timeoutSeconds = 60};
    of.device = devicesOn([this](Transport&) -> Expected<std::unique_ptr<GpuBackend>> {
      return std::unique_ptr<GpuBackend>(new ForwardingBackend(backend));
    });
    context = std::move(*Context::create(program, transports.transport(0), of));
    REQUIRE(bindAll(data, 0, *context));
  }

  static ModelOptions withLog(ModelOptions options) {
    options.isLogging = true;
    options.blocks = 2;
    options.hasOwnMemory = true;
    return options;
  }

  // The log without copies of results, which come after the launch.
  Words takeLog() {
    Words words;
    for (const std::string& word : std::exchange(group.log, {}))
      if (!word.starts_with("copy out") || words.empty() || words.back() != "launch") words.push_back(word);
    return words;
  }
  std::string idsCopied() { return "copy out " + std::to_string(viewTensor(ids()).bytes()); }
  tools::Tensor& ids() { return data.inputs[0].at("expert_ids"); }

  const Program program = programOf(buildMoeProgram(smallShape(1)));
  LayerData data = dataFor(program, samplesOf(1).front());
  ModelGroup group;
  LocalRanks transports;
  std::shared_ptr<GpuBackend> backend;
  std::unique_ptr<Context> context;
};

uint64_t hashWith(const ModelOptions& options, const std::function<void(OneRank&)>& prepare) {
  OneRank rank(options);
  prepare(rank);
  for (const std::string& entry : kBoth) REQUIRE(rank.context->run(entry));
  return hashOutputs(rank.data);
}

TEST_CASE("a step follows the caller's stream before the host copies ids, and precedes it after the launch") {
  OneRank rank;
  DeviceMemory memory = *rank.backend->reserve(static_cast<size_t>(viewTensor(rank.ids()).bytes()));
  TensorView ids = viewTensor(rank.ids());
  std::memcpy(memory.data, ids.data, static_cast<size_t>(ids.bytes()));
  ids.data = memory.data;
  REQUIRE(rank.context->bind("expert_ids", ids));
  REQUIRE(rank.context->setStream(kStream));
  rank.takeLog();
  REQUIRE(rank.context->run("forward"));
  CHECK(rank.takeLog() == Words{"mark 7", "follow 7", rank.idsCopied(), "launch", "precede 7"});
  REQUIRE(rank.context->run("backward"));
  CHECK(rank.takeLog() == Words{"mark 7", "follow 7", "launch", "precede 7"});
  const uint64_t found = hashOutputs(rank.data);
  CHECK(found == hashWith({}, [](OneRank&) {}));

  auto step = rank.context->submit("forward");
  REQUIRE(step);
  REQUIRE(step->wait());
  CHECK(rank.takeLog() == Words{"mark 7", "follow 7", rank.idsCopied(), "launch", "precede 7"});
  REQUIRE(rank.context->setStream(nullptr));
  REQUIRE(rank.context->run("forward"));
  CHECK(rank.takeLog() == Words{rank.idsCopied(), "launch"});
}

TEST_CASE("ids on the host are read when the caller's stream has written them") {
  std::vector<int32_t> late;
  std::function<void()> write;
  const auto prepare = [&](OneRank& rank) {
    TensorView ids = viewTensor(rank.ids());
    late.assign(static_cast<size_t>(ids.elements()), 1 << 20);  // of no expert
    write = [&late, ids] { std::memcpy(late.data(), ids.data, static_cast<size_t>(ids.bytes())); };
    ids.data = late.data();
    REQUIRE(rank.context->bind("expert_ids", ids));
    REQUIRE(rank.context->setStream(kStream));
  };
  CHECK(hashWith({.stream = [&] { write(); }}, prepare) == hashWith({}, [](OneRank&) {}));
}

TEST_CASE("a stream that is being captured is refused, and the context can be used without it") {
  bool isCaptured = true;
  OneRank rank({.isCaptured = &isCaptured});
  const Status set = rank.context->setStream(kStream);
  REQUIRE(!set);
  CHECK(set.error().message == "the stream is being captured");
  isCaptured = false;
  REQUIRE(rank.context->setStream(kStream));
  isCaptured = true;
  for (const Status& refused : {rank.context->run("forward"), [&] {
                                  auto step = rank.context->submit("forward");
                                  return step ? step->wait() : Status(step.error());
                                }()}) {
    REQUIRE(!refused);
    CHECK(refused.error().message == "the stream is being captured");
  }
  isCaptured = false;
  CHECK(rank.context->run("forward"));
}

TEST_CASE("the rank that cannot mark its stream refuses the step at all ranks") {
  const Program program = programOf(buildMoeProgram(smallShape(2)));
  bool isCaptured = false;
  ModelGroup group(2, {.blocks = 1, .isCaptured = &isCaptured});
  LayerData data = dataFor(program, samplesOf(2).front());
  const ContextOptions options{.timeoutSeconds = 60, .device = devicesOn(group.backends())};
  const auto statuses = runRanks(program, options, [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    if (rank == 0) {
      if (Status set = context.setStream(kStream); !set) return set;
      isCaptured = true;
    }
    const Status refused = context.run("forward");
    if (rank == 0)
      if (Status set = context.setStream(nullptr); !set) return set;
    return context.run("forward").ok() ? refused : Error{"the next step failed"};
  });
  REQUIRE(!statuses[0]);
  REQUIRE(!statuses[1]);
  CHECK(statuses[0].error().message == "the stream is being captured");
  CHECK(statuses[1].error().message == "rank 0: the stream is being captured");
}

TEST_CASE("CPU threads have no streams") {
  const Program program = programOf(buildMoeProgram(smallShape(1)));
  LocalRanks transports(1);
  const auto context = *Context::create(program, transports.transport(0), {.threads = 1});
  const Status set = context->setStream(kStream);
  REQUIRE(!set);
  CHECK(set.error().message ==
        "found a stream for CPU threads, expected none: only steps on a GPU have streams");
  CHECK(context->setStream(nullptr));
}

}  // namespace
}  // namespace sluice

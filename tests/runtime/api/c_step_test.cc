// The functions of sluice.h on submitted steps, saved sets, traces and forked children.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/runtime/api/c_layer.h"
#include "tests/testing/processes.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

const MoeShape kShape{.experts = 6};

LayerData dataOf(uint64_t seed, const MoeShape& shape = kShape, int64_t tokens = 40) {
  return makeLayerData(
      buildMoeProgram(shape),
      {.tokens = {.counts = std::vector<int64_t>(static_cast<size_t>(shape.ranks), tokens)}, .seed = seed});
}

Handle<sluice_step> submit(const Handle<sluice_context>& context, const char* entry, uint32_t saved = 0) {
  sluice_step* step = nullptr;
  sluice_context_submit(context.get(), entry, saved, &step);
  return Handle<sluice_step>(step);
}

// The hash of the outputs of a layer that ran alone.
uint64_t expectedHash(uint64_t seed) {
  LayerData data = dataOf(seed);
  const Handle<sluice_program> program = loadLayer(kShape);
  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  const Handle<sluice_context> context = contextOf(program, alone);
  REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
  for (const char* entry : {"forward", "backward"})
    REQUIRE(sluice_context_run(context.get(), entry, 0) == SLUICE_OK);
  return hashOutputs(data);
}

struct Bench {
  Bench() : program(loadLayer(kShape)), transport(std::move(threadsOf(1)[0])) {
    sluice_workspace* made = nullptr;
    REQUIRE(sluice_workspace_create(transport.get(), nullptr, &made) == SLUICE_OK);
    workspace.reset(made);
  }
  Handle<sluice_context> context() { return contextOf(program, transport, workspace.get()); }

  Handle<sluice_program> program;
  Handle<sluice_transport> transport;
  Handle<sluice_workspace> workspace;
};

TEST_CASE("submitted steps run in their order and give the bits of runs") {
  Bench bench;
  LayerData a = dataOf(1), b = dataOf(2);
  const Handle<sluice_context> first = bench.context(), second = bench.context();
  REQUIRE(bindLayer(first.get(), a, 0) == SLUICE_OK);
  REQUIRE(bindLayer(second.get(), b, 0) == SLUICE_OK);
  std::vector<Handle<sluice_step>> steps;
  for (const char* entry : {"forward", "backward"})
    for (const auto* context : {&first, &second}) {
      steps.push_back(submit(*context, entry));
      REQUIRE(steps.back());
    }
  for (auto& step : steps) CHECK(sluice_step_wait(step.get()) == SLUICE_OK);
  CHECK(sluice_step_wait(steps[0].get()) == SLUICE_OK);  // and again
  int32_t done = 0;
  CHECK(sluice_step_poll(steps[0].get(), &done) == SLUICE_OK);
  CHECK(done == 1);
  CHECK(sluice_step_cancel(steps[0].get()) == SLUICE_OK);  // it is over: nothing happens
  CHECK(sluice_step_wait(steps[0].get()) == SLUICE_OK);
  CHECK(hashOutputs(a) == expectedHash(1));
  CHECK(hashOutputs(b) == expectedHash(2));
}

TEST_CASE("a layer reads what a layer submitted before it wrote") {
  const Bench bench;
  const auto chain = [&](bool submitted) {
    LayerData a = dataOf(1), b = dataOf(2);
    const Handle<sluice_context> first = contextOf(bench.program, bench.transport, bench.workspace.get());
    const Handle<sluice_context> second = contextOf(bench.program, bench.transport, bench.workspace.get());
    REQUIRE(bindLayer(first.get(), a, 0) == SLUICE_OK);
    REQUIRE(bindLayer(second.get(), b, 0) == SLUICE_OK);
    const sluice_tensor y = tensorOf(a.outputs[0].at("y"));
    REQUIRE(sluice_context_bind(second.get(), "x", &y) == SLUICE_OK);
    if (submitted) {
      const Handle<sluice_step> one = submit(first, "forward"), two = submit(second, "forward");
      CHECK(sluice_step_wait(two.get()) == SLUICE_OK);
      CHECK(sluice_step_wait(one.get()) == SLUICE_OK);
    } else {
      CHECK(sluice_context_run(first.get(), "forward", 0) == SLUICE_OK);
      CHECK(sluice_context_run(second.get(), "forward", 0) == SLUICE_OK);
    }
    return hashOutputs(b);
  };
  CHECK(chain(true) == chain(false));
}

TEST_CASE("a step has the tensors that were bound when it was submitted") {
  Bench bench;
  LayerData a = dataOf(1), b = dataOf(2);
  const Handle<sluice_context> context = bench.context();
  REQUIRE(bindLayer(context.get(), a, 0) == SLUICE_OK);
  const Handle<sluice_step> forward = submit(context, "forward"), backward = submit(context, "backward");
  REQUIRE(bindLayer(context.get(), b, 0) == SLUICE_OK);
  CHECK(sluice_step_wait(forward.get()) == SLUICE_OK);
  CHECK(sluice_step_wait(backward.get()) == SLUICE_OK);
  CHECK(hashOutputs(a) == expectedHash(1));
  CHECK(hashOutputs(b) == hashOutputs(dataOf(2)));  // untouched
}

TEST_CASE("forwards of several saved sets come before their backwards, in any order and twice") {
  for (const auto& order : {std::vector<int>{0, 1}, {1, 0, 1}}) {
    Bench bench;
    std::vector<LayerData> data;
    data.push_back(dataOf(1));
    data.push_back(dataOf(2));
    const Handle<sluice_context> context = bench.context();
    for (int i : {0, 1}) {
      REQUIRE(bindLayer(context.get(), data[i], 0) == SLUICE_OK);
      REQUIRE(sluice_context_run(context.get(), "forward", i == 0 ? 0 : 5) == SLUICE_OK);
    }
    for (int i : order) {
      REQUIRE(bindLayer(context.get(), data[i], 0) == SLUICE_OK);
      REQUIRE(sluice_context_run(context.get(), "backward", i == 0 ? 0 : 5) == SLUICE_OK);
    }
    CHECK(hashOutputs(data[0]) == expectedHash(1));
    CHECK(hashOutputs(data[1]) == expectedHash(2));
    CHECK(sluice_context_run(context.get(), "backward", 6) == SLUICE_ERROR_FAILED);
    CHECK_THAT(sluice_context_error(context.get()), Contains("6"));
    sluice_stats stats{};
    stats.size = sizeof stats;
    REQUIRE(sluice_context_get_stats(context.get(), &stats) == SLUICE_OK);
    CHECK(stats.saved_bytes > 0);
  }
}

// Rank 0 of two, whose steps wait until rank 1 joins.
struct Waiting {
  Waiting() : program(loadLayer(shape)), transports(threadsOf(2)), data(dataOf(1, shape)) {
    other = std::thread([this] { second = contextOf(program, transports[1]); });
    first = contextOf(program, transports[0]);
    other.join();
    REQUIRE(first);
    REQUIRE(second);
    for (int rank : {0, 1})
      REQUIRE(bindLayer(rank == 0 ? first.get() : second.get(), data, rank) == SLUICE_OK);
  }
  const MoeShape shape{.ranks = 2};
  Handle<sluice_program> program;
  std::vector<Handle<sluice_transport>> transports;
  LayerData data;
  Handle<sluice_context> first, second;
  std::thread other;
};

TEST_CASE("a step that is cancelled before it begins never does, and those around it go on") {
  Waiting ranks;
  const Handle<sluice_step> forward = submit(ranks.first, "forward");
  const Handle<sluice_step> cancelled = submit(ranks.first, "backward");
  const Handle<sluice_step> again = submit(ranks.first, "forward");
  int32_t done = 1;
  CHECK(sluice_step_poll(again.get(), &done) == SLUICE_OK);
  CHECK(done == 0);
  sluice_stats stats{};
  stats.size = sizeof stats;
  CHECK(sluice_context_get_stats(ranks.first.get(), &stats) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_context_error(ranks.first.get()), Contains("wait for it first"));
  CHECK(sluice_context_trace_start(ranks.first.get(), 0) == SLUICE_ERROR_FAILED);
  CHECK(sluice_step_cancel(cancelled.get()) == SLUICE_OK);
  CHECK(sluice_step_wait(cancelled.get()) == SLUICE_ERROR_CANCELLED);
  CHECK(std::strlen(sluice_step_error(cancelled.get())) > 0);
  CHECK(sluice_context_run(ranks.second.get(), "forward", 0) == SLUICE_OK);
  CHECK(sluice_context_run(ranks.second.get(), "backward", 0) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_context_error(ranks.second.get()), Contains("cancelled"));
  CHECK(sluice_context_run(ranks.second.get(), "forward", 0) == SLUICE_OK);
  CHECK(sluice_step_wait(forward.get()) == SLUICE_OK);
  CHECK(sluice_step_wait(again.get()) == SLUICE_OK);
  CHECK(sluice_transport_is_aborted(ranks.transports[0].get()) == 0);
  CHECK(ranks.data.outputs[0].at("dx").as<uint16_t>()[0] == 0xa5a5);
}

TEST_CASE("a step that runs is cancelled at all ranks") {
  // until it has begun: it stays in it, since rank 1 does not come
  for (std::chrono::milliseconds wait(10); wait < std::chrono::minutes(1); wait *= 2) {
    Waiting ranks;
    const Handle<sluice_step> forward = submit(ranks.first, "forward");
    std::this_thread::sleep_for(wait);
    std::thread([&] { sluice_step_cancel(forward.get()); }).join();
    const sluice_status status = sluice_step_wait(forward.get());
    if (status == SLUICE_ERROR_CANCELLED) continue;  // it had not begun
    CHECK(status == SLUICE_ERROR_ABORTED);
    CHECK(sluice_transport_is_aborted(ranks.transports[1].get()) == 1);
    CHECK(sluice_context_run(ranks.second.get(), "forward", 0) == SLUICE_ERROR_ABORTED);
    return;
  }
  FAIL("the step did not begin");
}

TEST_CASE("a context that is freed waits for its steps, whose handles stay") {
  Bench bench;
  LayerData data = dataOf(1);
  Handle<sluice_context> context = bench.context();
  REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
  const Handle<sluice_step> forward = submit(context, "forward"), backward = submit(context, "backward");
  context.reset();
  bench.workspace.reset();
  bench.transport.reset();
  CHECK(hashOutputs(data) == expectedHash(1));
  CHECK(sluice_step_wait(forward.get()) == SLUICE_OK);
  CHECK(sluice_step_wait(backward.get()) == SLUICE_OK);
}

TEST_CASE("what is wrong with a step is said where it is submitted or when it is waited for") {
  Bench bench;
  const Handle<sluice_context> context = bench.context();
  auto* step = reinterpret_cast<sluice_step*>(8);
  CHECK(sluice_context_submit(nullptr, "forward", 0, &step) == SLUICE_ERROR_ARGUMENT);
  CHECK(step == nullptr);
  CHECK(sluice_context_submit(context.get(), nullptr, 0, &step) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_submit(context.get(), "forward", 0, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_submit(context.get(), "forward", 1024, &step) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_submit(context.get(), "sideways", 0, &step) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_context_error(context.get()), Contains("'sideways'"));
  sluice_status status = sluice_context_submit(context.get(), "forward", 0, &step);  // nothing is bound
  if (status == SLUICE_OK) {
    status = sluice_step_wait(step);
    CHECK_THAT(sluice_step_error(step), Contains("not bound"));
    sluice_step_free(step);
    CHECK_THAT(sluice_last_error(), Contains("not bound"));
  }
  CHECK(status == SLUICE_ERROR_FAILED);
  int32_t done = 0;
  CHECK(sluice_step_wait(nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_step_poll(nullptr, &done) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_step_cancel(nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_step_error(nullptr) == std::string("step is null"));
  sluice_step_free(nullptr);
}

TEST_CASE("runs are recorded and written as one file") {
  Bench bench;
  LayerData data = dataOf(1);
  const Handle<sluice_context> context = bench.context(), second = bench.context();
  REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
  TemporaryFolder folder;
  const std::string path = folder.file("trace.json");
  sluice_context* const one[] = {context.get()};
  sluice_context* const two[] = {context.get(), second.get()};
  sluice_context* const none[] = {nullptr};
  const auto written = [&] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(sluice_context_trace_start(nullptr, 0) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_trace_start(context.get(), ~uint64_t{0}) == SLUICE_ERROR_ARGUMENT);
  REQUIRE(sluice_context_trace_start(context.get(), 1000) == SLUICE_OK);
  REQUIRE(sluice_context_run(context.get(), "forward", 0) == SLUICE_OK);
  CHECK(sluice_trace_write(nullptr, 1, path.c_str()) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_trace_write(one, 0, path.c_str()) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_trace_write(none, 1, path.c_str()) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_trace_write(one, 1, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_trace_write(two, 2, path.c_str()) == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("two contexts of rank 0"));
  REQUIRE(sluice_trace_write(one, 1, path.c_str()) == SLUICE_OK);
  CHECK_THAT(written(), Contains("\"forward\"") && Contains("up_proj") && Contains("rank 0"));
  REQUIRE(sluice_trace_write(one, 1, path.c_str()) == SLUICE_OK);  // it was taken
  CHECK_THAT(written(), !Contains("up_proj"));
  for (const std::string& where : {folder.file("no/trace.json"), folder.path(), std::string("/dev/null")}) {
    CHECK(sluice_trace_write(one, 1, where.c_str()) == SLUICE_ERROR_FAILED);
    CHECK_THAT(sluice_last_error(), Contains(where));
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK(sluice_context_trace_stop(context.get()) == SLUICE_OK);
  CHECK(sluice_context_trace_stop(nullptr) == SLUICE_ERROR_ARGUMENT);
  const Handle<sluice_program> other = loadLayer({.experts = 7});
  const Handle<sluice_context> stranger = contextOf(other, bench.transport);
  sluice_context* const mixed[] = {context.get(), stranger.get()};
  CHECK(sluice_trace_write(mixed, 2, path.c_str()) == SLUICE_ERROR_ARGUMENT);
}

TEST_CASE("a forked child may free its handles, and every call on them is an error") {
  Processes parents(1, [](const Child&) -> std::string {
    Bench bench;
    LayerData data = dataOf(1);
    Handle<sluice_context> context = bench.context();
    if (bindLayer(context.get(), data, 0) != SLUICE_OK) return "bind";
    if (sluice_context_run(context.get(), "forward", 0) != SLUICE_OK) return "run";
    Handle<sluice_step> step = submit(context, "forward");
    const pid_t child = fork();
    if (child == 0) {
      const sluice_tensor x = tensorOf(data.inputs[0].at("x"));
      sluice_step* made = nullptr;
      sluice_workspace* workspace = nullptr;
      sluice_context* another = nullptr;
      int32_t done = 0;
      const bool refused =
          sluice_context_run(context.get(), "forward", 0) == SLUICE_ERROR_FAILED &&
          std::strstr(sluice_context_error(context.get()), "fork") &&
          sluice_context_bind(context.get(), "x", &x) == SLUICE_ERROR_FAILED &&
          sluice_context_submit(context.get(), "forward", 0, &made) == SLUICE_ERROR_FAILED &&
          sluice_step_wait(step.get()) == SLUICE_ERROR_FAILED &&
          sluice_step_poll(step.get(), &done) == SLUICE_ERROR_FAILED &&
          sluice_workspace_create(bench.transport.get(), nullptr, &workspace) == SLUICE_ERROR_FAILED &&
          sluice_context_create(bench.program.get(), bench.transport.get(), nullptr, &another) ==
              SLUICE_ERROR_FAILED &&
          sluice_transport_abort(bench.transport.get(), "x") == SLUICE_ERROR_FAILED;
      step.reset();
      context.reset();
      bench.workspace.reset();
      bench.transport.reset();
      bench.program.reset();
      _exit(refused ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return "the child failed";
    if (sluice_step_wait(step.get()) != SLUICE_OK) return "the step of the parent failed";
    return sluice_context_run(context.get(), "backward", 0) == SLUICE_OK ? "done" : "backward";
  });
  CHECK(parents.wait()[0].text == "done");
}

}  // namespace
}  // namespace sluice

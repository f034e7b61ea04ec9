// The functions of sluice.h on transports and workspaces: ranks that are threads and processes, jobs, aborts.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "tests/runtime/api/c_layer.h"
#include "tests/testing/processes.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

// The first status that is not SLUICE_OK; for the body of a thread, where assertions are not allowed.
sluice_status runLayerInC(const Handle<sluice_program>& program, const Handle<sluice_transport>& transport,
                          LayerData& data, int rank) {
  const Handle<sluice_context> context = contextOf(program, transport);
  if (!context) return SLUICE_ERROR_INTERNAL;
  if (sluice_status status = bindLayer(context.get(), data, rank)) return status;
  for (const char* entry : {"forward", "backward"})
    if (sluice_status status = sluice_context_run(context.get(), entry, SLUICE_SAVED_DEFAULT)) return status;
  return SLUICE_OK;
}

TEST_CASE("ranks that are threads compute the layer, forward and backward") {
  for (int ranks : {1, 2, 3}) {
    const MoeShape shape{.ranks = ranks, .experts = 5};
    const Handle<sluice_program> program = loadLayer(shape);
    LayerData data = makeLayerData(buildMoeProgram(shape), {.tokens = {.ragged = true, .most = 60}});
    std::vector<Handle<sluice_transport>> transports = threadsOf(ranks);
    REQUIRE(transports.size() == static_cast<size_t>(ranks));
    CHECK(sluice_transport_rank(transports.back().get()) == ranks - 1);
    CHECK(sluice_transport_size(transports[0].get()) == ranks);
    std::vector<sluice_status> results(ranks, SLUICE_ERROR_INTERNAL);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] { results[rank] = runLayerInC(program, transports[rank], data, rank); });
    for (std::thread& thread : threads) thread.join();
    CHECK(results == std::vector<sluice_status>(ranks, SLUICE_OK));
    checkOutputs(data);
  }
}

TEST_CASE("two threads run contexts of one program that know nothing of each other") {
  const MoeShape shape{.experts = 6};
  const Handle<sluice_program> program = loadLayer(shape);
  std::vector<LayerData> data;
  for (uint64_t seed : {1, 2})
    data.push_back(makeLayerData(buildMoeProgram(shape), {.tokens = {.counts = {50}}, .seed = seed}));
  std::vector<sluice_status> results(2, SLUICE_ERROR_INTERNAL);
  std::vector<std::thread> threads;
  for (int i : {0, 1})
    threads.emplace_back([&, i] {
      sluice_transport* alone = nullptr;
      if (sluice_transport_alone(&alone) != SLUICE_OK) return;
      const Handle<sluice_transport> transport(alone);
      for (int step = 0; step < 5; ++step) results[i] = runLayerInC(program, transport, data[i], 0);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(results == std::vector<sluice_status>(2, SLUICE_OK));
  for (const LayerData& each : data) checkOutputs(each);
}

TEST_CASE("ranks that are processes join a job by its name and compute the layer") {
  const MoeShape shape{.ranks = 2};
  const std::string job = "c-api-" + std::to_string(std::random_device()());
  Processes processes(2, [&](const Child& child) -> std::string {
    sluice_job given{};
    given.size = sizeof given;
    given.name = job.c_str();
    given.rank = child.rank();
    given.ranks = 2;
    sluice_transport* joined = nullptr;
    if (sluice_transport_join(&given, &joined) != SLUICE_OK) return sluice_last_error();
    const Handle<sluice_transport> transport(joined);
    LayerData data = makeLayerData(buildMoeProgram(shape), {.tokens = {.counts = {30, 17}}});
    if (runLayerInC(loadLayer(shape), transport, data, child.rank()) != SLUICE_OK) return sluice_last_error();
    const auto* y = data.outputs[child.rank()].at("y").as<BFloat16>();
    return std::isfinite(toFloat(y[0])) && y[0].bits != 0xa5a5 ? "done" : "nothing written";
  });
  for (const ChildEnd& end : processes.wait()) CHECK(end.text == "done");
}

TEST_CASE("a job that cannot be joined is an error") {
  sluice_job job{};
  auto* transport = reinterpret_cast<sluice_transport*>(8);
  CHECK(sluice_transport_join(nullptr, &transport) == SLUICE_ERROR_ARGUMENT);
  CHECK(transport == nullptr);
  CHECK(sluice_transport_join(&job, &transport) == SLUICE_ERROR_ARGUMENT);  // no size
  job.size = sizeof job;
  CHECK(sluice_transport_join(&job, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_transport_join(&job, &transport) == SLUICE_ERROR_ARGUMENT);  // no name
  job.name = "";
  job.ranks = 1;
  CHECK(sluice_transport_join(&job, &transport) == SLUICE_ERROR_FAILED);
  const std::string name = "c-api-" + std::to_string(std::random_device()());
  job.name = name.c_str();
  for (const auto& [rank, ranks] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, 1000}}) {
    job.rank = rank;
    job.ranks = ranks;
    CHECK(sluice_transport_join(&job, &transport) == SLUICE_ERROR_FAILED);
  }
  job.rank = 0;
  job.ranks = 2;
  for (double limit : {-1.0, std::nan("")}) {
    job.timeout_seconds = limit;
    CHECK(sluice_transport_join(&job, &transport) == SLUICE_ERROR_ARGUMENT);
  }
  job.timeout_seconds = 0.1;
  CHECK(sluice_transport_join(&job, &transport) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_last_error(), Contains("missing: 1"));
}

TEST_CASE("null pointers and values out of range give an error on transports and workspaces") {
  sluice_transport* transports[2] = {};
  CHECK(sluice_transport_alone(nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_transport_threads(1, nullptr) == SLUICE_ERROR_ARGUMENT);
  for (int32_t size : {0, -1, 4097})
    CHECK(sluice_transport_threads(size, transports) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_transport_rank(nullptr) == -1);
  CHECK(sluice_transport_size(nullptr) == 0);
  CHECK(sluice_transport_is_aborted(nullptr) == 0);
  CHECK(sluice_transport_abort(nullptr, "x") == SLUICE_ERROR_ARGUMENT);
  sluice_transport_free(nullptr);

  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  sluice_workspace* workspace = nullptr;
  sluice_workspace_info info{};
  CHECK(sluice_workspace_create(nullptr, nullptr, &workspace) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_workspace_create(alone.get(), nullptr, nullptr) == SLUICE_ERROR_ARGUMENT);
  sluice_workspace_options options{};
  CHECK(sluice_workspace_create(alone.get(), &options, &workspace) == SLUICE_ERROR_ARGUMENT);
  options.size = sizeof options;
  options.pinning = 2;
  CHECK(sluice_workspace_create(alone.get(), &options, &workspace) == SLUICE_ERROR_ARGUMENT);
  options.pinning = SLUICE_PIN_NEVER;
  options.threads = -1;
  CHECK(sluice_workspace_create(alone.get(), &options, &workspace) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_last_error(), Contains("-1 threads"));
  options.threads = 3;
  REQUIRE(sluice_workspace_create(alone.get(), &options, &workspace) == SLUICE_OK);
  const Handle<sluice_workspace> owned(workspace);
  CHECK(sluice_workspace_get_info(nullptr, &info) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_workspace_get_info(workspace, &info) == SLUICE_ERROR_ARGUMENT);
  info.size = sizeof info;
  REQUIRE(sluice_workspace_get_info(workspace, &info) == SLUICE_OK);
  CHECK(info.threads == 3);
  sluice_workspace_free(nullptr);
}

TEST_CASE("an abort ends the runs of all ranks for good") {
  const MoeShape shape{.ranks = 2};
  const Handle<sluice_program> program = loadLayer(shape);
  LayerData data = makeLayerData(buildMoeProgram(shape), {.tokens = {.counts = {20, 20}}});
  const std::vector<Handle<sluice_transport>> transports = threadsOf(2);
  sluice_status waited = SLUICE_OK;
  std::string message;
  std::thread first([&] {
    const Handle<sluice_context> context = contextOf(program, transports[0]);
    if (!context || bindLayer(context.get(), data, 0) != SLUICE_OK) return;
    waited = sluice_context_run(context.get(), "forward", 0);
    message = sluice_context_error(context.get());
  });
  CHECK(sluice_transport_abort(transports[1].get(), "rank 1 has no input") == SLUICE_OK);
  first.join();
  CHECK(waited == SLUICE_ERROR_ABORTED);
  CHECK_THAT(message, Contains("rank 1 has no input"));
  CHECK(sluice_transport_is_aborted(transports[0].get()) == 1);
}

TEST_CASE("handles are freed in any order") {
  const MoeShape shape{};
  LayerData data = makeLayerData(buildMoeProgram(shape), {.tokens = {.counts = {20}}});
  Handle<sluice_program> program = loadLayer(shape);
  Handle<sluice_transport> transport = std::move(threadsOf(1)[0]);
  sluice_workspace* made = nullptr;
  REQUIRE(sluice_workspace_create(transport.get(), nullptr, &made) == SLUICE_OK);
  Handle<sluice_workspace> workspace(made);
  const Handle<sluice_context> context = contextOf(program, transport, made);
  program.reset();
  workspace.reset();
  transport.reset();
  REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
  CHECK(sluice_context_run(context.get(), "forward", 0) == SLUICE_OK);
}

}  // namespace
}  // namespace sluice
